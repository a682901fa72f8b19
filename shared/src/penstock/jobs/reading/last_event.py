"""What the last event of a job proves without the others; a client may store any event."""

from __future__ import annotations

from penstock.bus.protocol import Bus, Stored
from penstock.events.job import (
    JOB_EVENTS,
    JobCancelled,
    JobCompleted,
    JobDead,
    JobDispatched,
    JobStarted,
)
from penstock.events.subjects import Subjects
from penstock.jobs.event_store import started_calls
from penstock.jobs.event_store.event_log import read_event


async def proves_an_end(bus: Bus, subjects: Subjects, last: Stored) -> bool:
    """Whether a job has ended for certain; if not, it is to be read.

    A job that lives is dead, or cancelled, by any such event. It completed by one that lies right
    behind a start from its own call.

    Args:
        last: the job's last event.

    Raises:
        BusError
    """
    event = read_event(last, JOB_EVENTS)
    if isinstance(event, JobDead | JobCancelled):
        return True
    if not isinstance(event, JobCompleted):
        return False
    tree = subjects.job(event.job_id)
    kinds = (JobStarted, JobDispatched)
    names = [subjects.events("job", event.job_id, kind.__name__) for kind in kinds]
    stored = await bus.last_of(subjects.events_stream, names)
    start, dispatch = map(stored.get, names)
    return started_calls.is_behind_its_start(last, start, dispatch, tree)
