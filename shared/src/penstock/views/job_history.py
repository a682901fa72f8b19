"""The jobs that something happened to lately, out of the event log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from penstock.bus.protocol import Bus, Stored
from penstock.events.envelope import Event, UnknownEvent
from penstock.events.job import JOB_EVENTS, JobCarried, JobDispatched
from penstock.events.subjects import Subjects
from penstock.jobs.client import Client
from penstock.jobs.errors import JobsError
from penstock.jobs.event_log import read_event
from penstock.jobs.lifecycle import JobRecord, State, fold, leads_to
from penstock.views import lookback

_ASKED_AT_ONCE = 20

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
    reader = _Reader(Client(bus, prefix=subjects.prefix), wanted.state)
    fitting: list[JobRecord] = []
    everything = subjects.events(noun="job")
    async for messages, is_complete in lookback.back(bus, subjects.events_stream, everything):
        fitting = []
        async for record in reader.records(messages, is_complete):
            if wanted.fits(record):
                fitting.append(record)
                if len(fitting) == wanted.limit:
                    return fitting
    return fitting


class _Reader:
    """Makes records of recent events; asks for a job whose beginning is not among them, once.

    Args:
        state: jobs whose recent events lead to other states are not asked for; None for any.
    """

    def __init__(self, client: Client, state: State | None) -> None:
        self._client, self._state = client, state
        self._asked: dict[str, JobRecord | None] = {}

    async def records(
        self, messages: Sequence[Stored], is_complete: bool
    ) -> AsyncIterator[JobRecord]:
        """Of jobs in ``messages``, the last changed first.

        Args:
            is_complete: no events are left in the log before these.
        """
        histories = list(reversed(_by_job(messages).items()))
        for start in range(0, len(histories), _ASKED_AT_ONCE):
            some = histories[start : start + _ASKED_AT_ONCE]
            for record in await asyncio.gather(
                *(self._record(job_id, history, is_complete) for job_id, history in some)
            ):
                if record is not None:
                    yield record

    async def _record(self, job_id: str, history: History, is_complete: bool) -> JobRecord | None:
        """None where its first events left the log: its state is not known."""
        if is_complete or isinstance(history[0][1], JobDispatched | JobCarried):
            return fold(history)
        if self._state and not any(leads_to(event, self._state) for _, event in history):
            return None
        if job_id not in self._asked:
            try:
                self._asked[job_id] = (await self._client.job(job_id)).record
            except JobsError:
                self._asked[job_id] = None
        return self._asked[job_id]


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
