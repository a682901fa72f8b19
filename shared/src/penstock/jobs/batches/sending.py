"""Sending the jobs of a batch in chunks, each once, while the batch takes jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice

from penstock.bus.protocol import BusError, BusUnavailable, WrongSequence
from penstock.events.job import JobDispatched
from penstock.jobs import derived_ids
from penstock.jobs.batches.batch_record import BatchRecord
from penstock.jobs.batches.slots import Slots
from penstock.jobs.dispatch.dispatcher import CHUNK_JOBS, CHUNKS_AT_ONCE
from penstock.jobs.dispatch.sender import Sender
from penstock.jobs.retry import Backoff

_TRIES = 20
_BACKOFF = Backoff(first_seconds=0.05, max_seconds=0.25)
"""About 3 s in all: a full event log is shortened within that, if it can be."""


async def send_members(
    sender: Sender,
    events: Iterator[JobDispatched],
    check: Callable[[], Awaitable[BatchRecord]],
) -> list[str]:
    """Sends jobs in chunks; returns their ids.

    Args:
        sender: sends them.
        events: their first events.
        check: returns the batch, before each chunk; raises where it takes no jobs any more.

    Raises:
        JobRefused: of ``check``, or a call was refused.
        BusError: not every job was stored.
    """
    id_chunks: list[list[str]] = []

    async def send_chunks() -> None:
        while chunk := list(islice(events, CHUNK_JOBS)):
            id_chunks.append([event.job_id for event in chunk])
            await _send_chunk(sender, _without_ended(await check(), chunk))

    await asyncio.gather(*(send_chunks() for _ in range(CHUNKS_AT_ONCE)))
    return [job_id for ids in id_chunks for job_id in ids]


async def _send_chunk(sender: Sender, events: list[JobDispatched]) -> None:
    """Retries by itself, since only the jobs without an answer are sent again."""
    for attempt in range(1, _TRIES + 1):
        unanswered: list[JobDispatched] = []
        for event, answer in zip(events, await sender.send_many(events), strict=True):
            if isinstance(answer, BusUnavailable) and attempt < _TRIES:
                unanswered.append(event)
            elif isinstance(answer, BusError) and not isinstance(answer, WrongSequence):
                raise answer  # a wrong sequence: this job was dispatched before
        if not unanswered:
            return
        events = unanswered
        await asyncio.sleep(_BACKOFF.delay_seconds(attempt))


def _without_ended(record: BatchRecord, events: list[JobDispatched]) -> list[JobDispatched]:
    """Without jobs that were added before and have ended, although no event of them is left."""
    if record.slots is None:
        return events
    slots = Slots(record.id, record.slots)
    members = [derived_ids.member(event.job_id) for event in events]
    return [
        event
        for event, member in zip(events, members, strict=True)
        if member is None or not slots.has_ended(member)
    ]
