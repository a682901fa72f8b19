"""Asks a host's executor to drain one of its workers."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec

from penstock.bus.protocol import Bus
from penstock.events.draining import DrainAnswered, DrainAsked, DrainOutcome
from penstock.events.envelope import new_id
from penstock.events.subjects import Subjects, check_name
from penstock.operations.orders import LONGEST_REASON

PATIENCE_SECONDS = 5.0
"""How long to wait for the answer."""
_REPEAT_SECONDS = 1.0
"""A request, or its answer, may be lost; a second one changes nothing."""


async def drain_worker(
    bus: Bus, subjects: Subjects, host: str, worker: str, *, by: str, reason: str = ""
) -> DrainOutcome | None:
    """Drains a worker: it finishes its jobs and ends, and the executor starts another if planned.

    Args:
        bus: a connection.
        subjects: of the installation.
        host: of the worker.
        worker: its name.
        by: origin of the request.
        reason: why; its first 200 characters are logged.

    Returns:
        What the executor answered; None where it did not.

    Raises:
        BusError: the request was not sent.
        BadName: no host or worker can have this name.
    """
    request = DrainAsked(
        answer_to=new_id(),
        worker=check_name("worker", worker),
        by=by,
        reason=reason[:LONGEST_REASON],
    )
    subject = subjects.drain_asked(check_name("host", host))
    answer: asyncio.Future[DrainOutcome] = asyncio.get_running_loop().create_future()

    def take(_: str, body: bytes) -> None:
        with suppress(msgspec.MsgspecError):
            answered = msgspec.json.decode(body, type=DrainAnswered)
            if answered.worker == worker and not answer.done():
                answer.set_result(answered.outcome)

    listening = await bus.listen(subjects.drain_answered(request.answer_to), take)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not answer.done():
                    await bus.signal(subject, msgspec.json.encode(request))
                    await asyncio.wait([answer], timeout=_REPEAT_SECONDS)
    finally:
        await listening.unsubscribe()
    return answer.result() if answer.done() else None
