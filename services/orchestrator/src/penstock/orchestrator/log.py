"""The event log as the reconciler reads it: cheaply, since all of it passes by."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import datetime
from typing import Any

import msgspec

from penstock.bus.protocol import Bus, Stored
from penstock.events.subjects import Subjects, check_name
from penstock.orchestrator.core.unresolved import AWAITED, Step


class _Fields(msgspec.Struct):
    """The few fields that are needed; a job's payload is not even decoded."""

    queue: str = ""
    due_at: datetime | None = None
    retry_of: str | None = None


_decode = msgspec.json.Decoder(_Fields).decode


async def steps(bus: Bus, subjects: Subjects, start: int) -> AsyncIterator[Step]:
    """Every event that opens or closes a transition, from a sequence on, without end."""
    wanted = [subjects.events("job", "*", name) for name in AWAITED]
    stream: Any = bus.follow(subjects.events_stream, wanted, max(start, 1))
    async with aclosing(stream) as messages:
        async for stored in messages:
            yield step(stored)


def step(stored: Stored) -> Step:
    """What cannot be read is kept without its fields: the job's whole story is read later."""
    _, job_id, event = stored.subject.rsplit(".", 2)
    fields = _Fields()
    if AWAITED.get(event):
        try:
            fields = _decode(stored.body)
            if fields.queue:
                check_name("queue", fields.queue)
        except (ValueError, RecursionError):  # also text that is none; BadName
            fields = _Fields()
    return Step(
        job_id=job_id,
        event=event,
        sequence=stored.sequence,
        at=stored.at.timestamp(),
        queue=fields.queue,
        due_at=fields.due_at.timestamp() if fields.due_at else None,
        retry_of=fields.retry_of,
    )
