"""Jobs that died, stored as workers store it: what bulk actions are measured on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

from msgspec.structs import replace

from noop_jobs import noop
from penstock.bus import bounded
from penstock.bus.nats import NatsBus
from penstock.bus.protocol import BusError, Expect, Outgoing
from penstock.events.job import JOB_EVENTS, JobDispatched, JobError, JobEvent, JobStarted
from penstock.jobs import lifecycle
from penstock.jobs.client import Client
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import JobRecord
from penstock.jobs.queues import queue_messages
from penstock.jobs.retry import DEFAULT_BACKOFF
from penstock.worker.core.outcome import failed

_JOBS_AT_ONCE = 2_000
_BATCHES_SHARE, _BATCHES_AT_ONCE = 20, 32
_ERROR = JobError(
    kind="builtins.TimeoutError",
    message="the store did not answer",
    traceback="Traceback (most recent call last):\n" + 12 * '  File "/srv/shop.py", line 7\n',
)


async def die(bus: NatsBus, jobs: int, attempts: int) -> int:
    """Has so many jobs dispatched, tried and buried; the sequence of the last event.

    Each start by a compare-and-set; the failure and what follows from it in an atomic batch for one
    job in twenty, else one after the other, as where the broker has too many batches open, since
    a batch takes it 10 ms; and a dead letter for each.

    Args:
        jobs: how many.
        attempts: of each.
    """
    client, log = Client(bus), JobLog(bus, bus.subjects, "worker/h1.1")
    for first in range(0, jobs, _JOBS_AT_ONCE):
        calls = [noop(number=n) for n in range(first, min(first + _JOBS_AT_ONCE, jobs))]
        records = await _dispatched(bus, log, await client.dispatch_many(calls))
        for attempt in range(1, attempts + 1):
            records = await _started(bus, log, records, attempt)
            records = await _failed(bus, log, records, attempt, attempts)
        letters = [queue_messages.dead_letter(bus.subjects, record, {}) for record in records]
        await _append(bus, letters)
    return (await bus.extent(bus.subjects.events_stream)).last


async def _dispatched(bus: NatsBus, log: JobLog, job_ids: list[str]) -> list[JobRecord]:
    subjects, kind = log.subjects, JobDispatched.__name__
    names = [subjects.events("job", job_id, kind) for job_id in job_ids]
    stored = await bus.last_of(subjects.events_stream, names)
    folded = (
        lifecycle.fold([(one.sequence, read_event(one, JOB_EVENTS))]) for one in stored.values()
    )
    return [record for record in folded if record is not None]


async def _started(
    bus: NatsBus, log: JobLog, records: list[JobRecord], attempt: int
) -> list[JobRecord]:
    starts = [
        JobStarted(
            job_id=record.id, correlation_id=record.id, source=log.source, queue=record.queue,
            attempt=attempt, host="h1", worker="h1-bench-1", function=record.function,
            call=record.call,
        )
        for record in records
    ]  # fmt: skip
    return await _evolved(bus, log, records, starts)


async def _failed(
    bus: NatsBus, log: JobLog, records: list[JobRecord], attempt: int, attempts: int
) -> list[JobRecord]:
    verdicts = [_verdict(log, record, attempt, attempts) for record in records]
    few = len(records) // _BATCHES_SHARE
    together = list(zip(records[:few], verdicts[:few], strict=True))
    after = await bounded.gather(partial(_fail, bus, log), together, _BATCHES_AT_ONCE)
    apart = records[few:]
    for events in zip(*verdicts[few:], strict=True):
        apart = await _evolved(bus, log, apart, events)
    return after + apart


def _verdict(log: JobLog, record: JobRecord, attempt: int, attempts: int) -> tuple[JobEvent, ...]:
    return failed(
        job_id=record.id, function=record.function, queue=record.queue, attempt=attempt,
        tries=attempts, backoff=DEFAULT_BACKOFF, error=_ERROR, run_seconds=0.1,
        now=datetime.now(UTC), source=log.source,
    )  # fmt: skip


async def _fail(
    bus: NatsBus, log: JobLog, verdict: tuple[JobRecord, tuple[JobEvent, ...]]
) -> JobRecord:
    record, events = verdict
    first, *rest = (log.outgoing(event, None, {}) for event in events)
    condition = Expect(record.sequence, log.subjects.job(record.id))
    last = await bus.append_atomic([replace(first, expect=condition), *rest])
    for sequence, event in enumerate(events, last - len(events) + 1):
        record = lifecycle.evolve(record, event, sequence)
    return record


async def _evolved(
    bus: NatsBus, log: JobLog, records: Sequence[JobRecord], events: Sequence[JobEvent]
) -> list[JobRecord]:
    """The jobs after one more event each."""
    messages = [
        log.outgoing(event, record.sequence, {})
        for event, record in zip(events, records, strict=True)
    ]
    sequences = await _append(bus, messages)
    return [
        lifecycle.evolve(record, event, sequence)
        for record, event, sequence in zip(records, events, sequences, strict=True)
    ]


async def _append(bus: NatsBus, messages: list[Outgoing]) -> list[int]:
    sequences: list[int] = []
    for stored in await bus.append_many(messages):
        if isinstance(stored, BusError):
            raise stored
        sequences.append(stored)
    return sequences
