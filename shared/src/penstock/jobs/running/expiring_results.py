"""Results with a time to live: stored by the broker beside the event log, removed by it in time."""

from __future__ import annotations

import math

import msgspec

from penstock.bus.protocol import Bus, BusRefused, Outgoing
from penstock.events.subjects import Subjects
from penstock.jobs.lifecycle import JobRecord


def outgoing(
    subjects: Subjects, job_id: str, token: int, result: bytes, seconds: float
) -> Outgoing:
    """The message that holds the result of an attempt.

    Args:
        token: of the attempt: one that was deposed does not replace the result of another.
        seconds: after which the broker removes it.
    """
    headers = {"Nats-TTL": f"{math.ceil(seconds)}s"}
    return Outgoing(_subject(subjects, job_id, token), result, headers)


async def with_result(bus: Bus, subjects: Subjects, record: JobRecord) -> JobRecord:
    """The record with its result, if that is stored apart from it and has not expired.

    Raises:
        BusUnavailable
    """
    if record.result_until is None or record.result_until.timestamp() <= bus.now():
        return record
    try:
        stored = await bus.last(subjects.keys_stream, _subject(subjects, record.id, record.token))
    except BusRefused:  # a key that only reads events
        return record
    return msgspec.structs.replace(record, result=stored.body) if stored else record


def _subject(subjects: Subjects, job_id: str, token: int) -> str:
    return subjects.key("result", f"{job_id}_{token}")
