"""Whether an event follows from the job's own call, without reading the whole history. Pure."""

from __future__ import annotations

from penstock.bus.protocol import Stored
from penstock.events.job import JOB_EVENTS, JobDispatched, JobStarted
from penstock.jobs.event_store import unbroken
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.payloads.call_digest import call_digest


def is_behind_its_start(
    stored: Stored, start: Stored | None, dispatch: Stored | None, tree: str
) -> bool:
    """Whether an event lies right behind a start of its job from the call that was dispatched.

    Whether or not that start counts, the job ran then, or had ended.

    Args:
        stored: the event.
        start: the job's last JobStarted; None where there is none in the log.
        dispatch: its JobDispatched; None where there is none in the log.
        tree: subject of all events of the job, with its wildcard.
    """
    if start is None or start.sequence != unbroken.predecessor(stored, tree):
        return False
    started = read_event(start, JOB_EVENTS)
    if not isinstance(started, JobStarted):
        return False
    if not started.call:  # of a version before there was a digest
        return True
    if dispatch is None or not unbroken.is_first(dispatch, tree):
        return False
    event = read_event(dispatch, JOB_EVENTS)
    return isinstance(event, JobDispatched) and call_digest(event.payload) == started.call
