"""The jobs that something happened to lately, out of the event log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from penstock.bus.protocol import Bus, Stored
from penstock.cli import eventlog
from penstock.events.envelope import Event, UnknownEvent
from penstock.events.job import JOB_EVENTS, JobCarried, JobDispatched
from penstock.events.subjects import Subjects
from penstock.jobs.client import Client
from penstock.jobs.errors import JobsError
from penstock.jobs.lifecycle import JobRecord, State, fold
from penstock.jobs.story import read_event

History = list[tuple[int, Event | UnknownEvent]]


class Wanted(NamedTuple):
    """Which jobs are listed; None is any."""

    state: State | None
    queue: str | None
    limit: int

    def fits(self, record: JobRecord) -> bool:
        return self.state in {None, record.state} and self.queue in {None, record.queue}


async def newest_jobs(bus: Bus, subjects: Subjects, wanted: Wanted) -> list[JobRecord]:
    """At most ``wanted.limit`` jobs, those that changed last first."""
    client = Client(bus, prefix=subjects.prefix)
    found: list[JobRecord] = []
    everything = subjects.events(noun="job")
    async for messages, _ in eventlog.back(bus, subjects.events_stream, everything):
        found = []
        async for record in _records(client, messages):
            if wanted.fits(record):
                found.append(record)
                if len(found) == wanted.limit:
                    return found
    return found


async def _records(client: Client, messages: Sequence[Stored]) -> AsyncIterator[JobRecord]:
    for job_id, history in reversed(_by_job(messages).items()):
        try:
            whole = isinstance(history[0][1], JobDispatched | JobCarried)
            record = fold(history) if whole else (await client.job(job_id)).record
        except JobsError:  # its first events aged out: its state cannot be told
            continue
        if record is not None:
            yield record


def _by_job(messages: Sequence[Stored]) -> dict[str, History]:
    """The events of each job; the job of the latest event comes last."""
    found: dict[str, History] = {}
    for stored in messages:
        job_id = stored.subject.split(".")[-2]
        event = read_event(stored, JOB_EVENTS)
        history = found.pop(job_id, [])
        history.append((stored.sequence, event))
        found[job_id] = history
    return found
