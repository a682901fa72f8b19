"""Many jobs in a few requests, where a few of their events prove how they stand.

To read one job takes a count of its messages, and a request for each kind of event. Here the last
events of hundreds of jobs are read together.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.bus import bounded
from penstock.bus.protocol import Bus, Stored
from penstock.events.job import (
    JOB_EVENTS,
    JobCancelled,
    JobCarried,
    JobDead,
    JobDispatched,
    JobEvent,
    JobFailed,
    JobProgressed,
    JobRecovered,
    JobReleased,
    JobRetrying,
    JobStarted,
)
from penstock.events.subjects import Subjects
from penstock.jobs import lifecycle
from penstock.jobs.event_store import unbroken
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.lifecycle import TRANSITIONS, JobRecord, State
from penstock.jobs.workflows.coded.step_ends import last_events

_USUAL = (JobDispatched, JobStarted, JobFailed, JobDead, JobCancelled)
_OF_ATTEMPTS = frozenset(
    {JobStarted, JobProgressed, JobFailed, JobRetrying, JobReleased, JobRecovered}
)
"""They neither end a job, nor change what a later life of it begins with."""
_DECIDING: tuple[type[JobEvent], ...] = (
    JobCarried,
    *dict.fromkeys(edge.event for edge in TRANSITIONS if edge.event not in _OF_ATTEMPTS),
)
_JOBS_AT_ONCE = 480 // len(_DECIDING)
"""Of each all is read by one request, and so from one replica."""
_REQUESTS_AT_ONCE = 6


async def read(bus: Bus, subjects: Subjects, job_ids: Sequence[str]) -> dict[str, JobRecord]:
    """Those of these jobs whose last events prove how they stand, by id.

    1. Where each of these names the one before it, by the broker's word, there are no others (see
       :mod:`penstock.jobs.event_store.unbroken`).
    2. A job that was tried several times is dead where it has a first event and a death, and none
       of those that end a job otherwise or change its call, queue, tags or output. What its record
       says of its attempts is then left out.

    A job is as of the last of these events; it may have further ones. So an event that follows from
    such a record is stored by compare-and-set on its ``sequence``, and where that fails, or nothing
    follows, the job is to be read.

    Raises:
        BusError
    """
    last = await last_events(bus, subjects, job_ids, _USUAL)
    whole = {
        job_id: _folded(messages)
        for job_id, messages in last.items()
        if unbroken.is_whole(messages, subjects.job(job_id))
    }
    others = [job_id for job_id, messages in last.items() if job_id not in whole and messages]

    async def read_some(start: int) -> list[JobRecord]:
        some = others[start : start + _JOBS_AT_ONCE]
        deciding = await last_events(bus, subjects, some, _DECIDING)
        records = [_dead(deciding[job_id], subjects.job(job_id)) for job_id in some]
        return [record for record in records if record is not None]

    starts = range(0, len(others), _JOBS_AT_ONCE)
    dead = await bounded.gather(read_some, starts, _REQUESTS_AT_ONCE)
    records = [*whole.values(), *(record for some in dead for record in some)]
    return {record.id: record for record in records if record is not None}


def _dead(deciding: Sequence[Stored], tree: str) -> JobRecord | None:
    """A job of which these are the last events of each kind that matters; None if it is in doubt.

    A dispatch that was first is the only one that counts, and a job that lives is dead by any
    JobDead, of whatever attempt.
    """
    names = [stored.subject.rpartition(".")[2] for stored in deciding]
    if names != [JobDispatched.__name__, JobDead.__name__]:
        return None
    if not unbroken.is_first(deciding[0], tree):
        return None
    record = _folded(deciding)
    return record if record is not None and record.state is State.DEAD else None


def _folded(messages: Sequence[Stored]) -> JobRecord | None:
    return lifecycle.fold((one.sequence, read_event(one, JOB_EVENTS)) for one in messages)
