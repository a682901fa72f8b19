"""The jobs that have not ended, from their messages: in queues, and in the broker's schedules.

A job whose move or requeueing was cut off between its event and its message has none for some
seconds, until an orchestrator stores it. Such jobs are found by these events.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import NamedTuple

import msgspec

from penstock.bus.protocol import Bus, Stored, broker_time
from penstock.bus.since import first_since
from penstock.events.job import JobMoved, JobRevived
from penstock.events.subjects import BadName, Subjects, check_name
from penstock.jobs.lifecycle import JobRecord
from penstock.jobs.payloads import payload
from penstock.jobs.payloads.payload import Payload
from penstock.jobs.queues import queue_messages

PAGE = 200
"""Messages read at a time: each may hold a payload of ``jobs.max_payload_bytes``."""
_RECENT = timedelta(minutes=2)
"""Within this the message of a requeued job is stored; an orchestrator takes some 20 s."""
_MOST_REQUEUED = 100_000
"""Jobs whose ids are kept in memory."""


class JobMessage(NamedTuple):
    """A message of a job.

    Attributes:
        stored: None where the message is missing.
        made_from: sequence of the event that the message was made from: if the job has no later
            event, it waits.
        call: with the name of its queue.
    """

    stored: Stored | None
    job_id: str
    made_from: int
    call: Payload


async def pages(
    bus: Bus, subjects: Subjects, queues: Sequence[str]
) -> AsyncIterator[list[JobMessage]]:
    """The messages that are there when a pattern is begun, a page at a time.

    Schedules come first: one that fires meanwhile is then found in its queue.

    Args:
        bus: a connected bus.
        subjects: names of streams and subjects.
        queues: names of queues; none for all.
    """
    names = queues or ("*",)
    patterns = [subjects.schedule(name, "*") for name in names]
    patterns += [subjects.queue(name) for name in names]
    for pattern in patterns:
        last = await bus.last(subjects.jobs_stream, pattern)
        start, end = 1, last.sequence if last else 0
        while start <= end:
            page = await bus.history(subjects.jobs_stream, pattern, PAGE, start)
            if not page:
                break
            yield [
                message
                for stored in page
                if stored.sequence <= end and (message := _read(subjects, stored)) is not None
            ]
            start = page[-1].sequence + 1


async def requeued(bus: Bus, subjects: Subjects) -> set[str]:
    """Ids of the jobs that were moved or requeued lately: their messages may be missing."""
    jobs: set[str] = set()
    stream, since = subjects.events_stream, broker_time(bus) - _RECENT
    for event in (JobMoved, JobRevived):
        pattern = subjects.events("job", "*", event.__name__)
        start = await first_since(bus, stream, pattern, since)
        while page := await bus.history(stream, pattern, PAGE, start):
            jobs.update(stored.subject.rsplit(".", 2)[-2] for stored in page)
            if len(jobs) >= _MOST_REQUEUED:
                return jobs
            start = page[-1].sequence + 1
    return jobs


def without_message(record: JobRecord) -> JobMessage:
    """What stands for the missing message of a job. Raises ValueError: it cannot be read."""
    call = payload.decode(record.payload)
    call = msgspec.structs.replace(call, id=record.id, queue=record.queue)
    return JobMessage(None, record.id, record.sequence, call)


def _read(subjects: Subjects, stored: Stored) -> JobMessage | None:
    """None for what is no message of a job: a worker makes a dead letter of it."""
    try:
        job_id = check_name("job", stored.headers.get(queue_messages.JOB, ""))
        made_from = int(stored.headers.get(queue_messages.SEQUENCE, ""))
        call = payload.decode(stored.body)
        of_its_queue = {subjects.queue(call.queue), subjects.schedule(call.queue, job_id)}
    except (BadName, ValueError, RecursionError, msgspec.MsgspecError):
        return None
    if call.id != job_id or stored.subject not in of_its_queue or not 0 < made_from < 2**63:
        return None
    return JobMessage(stored, job_id, made_from, call)
