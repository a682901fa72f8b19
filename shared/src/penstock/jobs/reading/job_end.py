"""Waiting for the end of a job, and for the letter of a dead one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from penstock.bus.protocol import Bus, BusError, BusUnavailable
from penstock.events.envelope import utc_now
from penstock.events.subjects import Subjects
from penstock.jobs.errors import NotFound
from penstock.jobs.event_store import event_log
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import END_EVENTS, JobRecord, State
from penstock.runtime.tasks import within

_LETTER_LOOK_SECONDS = 0.02
_LETTER_SECONDS = 2.0

Read = Callable[[], Awaitable[JobView]]
"""Reads a job. Raises NotFound, BusError."""


async def wait(
    bus: Bus,
    subjects: Subjects,
    job_id: str,
    timeout_seconds: float | None,
    *,
    read: Read,
    read_all: Read,
) -> JobView:
    """The job once it has ended; see :meth:`penstock.jobs.Client.wait`.

    Args:
        bus: a connected bus.
        subjects: names of streams and subjects.
        job_id: of the job.
        timeout_seconds: how long to wait; None for however long it takes.
        read: reads its record.
        read_all: reads also why it has not started.

    Raises:
        TimeoutError, NotFound
    """
    try:
        view = await event_log.wait_until(
            bus,
            subjects.job(job_id),
            read,
            lambda view: view.state.ended,
            timeout_seconds,
            names=END_EVENTS,
        )
    except TimeoutError as error:
        text = f"job {job_id} has not ended within {timeout_seconds} s"
        raise TimeoutError(f"{text}; {await _state(read_all)}") from error
    if view.state is State.DEAD:
        await within(_LETTER_SECONDS, _letter_is_stored(bus, subjects, view.record))
    return view


async def _state(read: Read) -> str:
    """How a job is that was waited for in vain."""
    try:
        async with asyncio.timeout(_LETTER_SECONDS):
            view = await read()
    except (BusError, NotFound, TimeoutError) as error:
        return f"it cannot be read: {error or 'no answer'}"
    text = f"it is {view.state}, attempt {view.attempts}"
    return f"{text}; {view.handed_on}" if view.handed_on else text


async def _letter_is_stored(bus: Bus, subjects: Subjects, record: JobRecord) -> None:
    """Returns when the letter of a recent death is stored, which follows the event."""
    subject = subjects.dead(record.queue, record.id)
    died_at = record.finished_at or record.dispatched_at
    while (utc_now() - died_at).total_seconds() < _LETTER_SECONDS:
        with suppress(BusUnavailable):
            if await bus.last(subjects.dead_stream, subject):
                return
        await asyncio.sleep(_LETTER_LOOK_SECONDS)
