"""Histories of jobs whose first events have left the log. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.events.envelope import Event, UnknownEvent
from penstock.events.job import JobCarried, JobCompleted, JobDispatched, JobRevived

_BEGINNINGS = (JobCarried, JobRevived, JobCompleted)
"""Besides JobDispatched, what a record can begin with where earlier events left the log."""


def without_tail(
    events: Sequence[tuple[int, Event | UnknownEvent]],
) -> Sequence[tuple[int, Event | UnknownEvent]]:
    """The events from the first on that a record can begin with, and the unreadable ones before.

    History is shortened from its old end, so the first events of a job leave the log before its
    later ones. A job that has ended leaves such a tail, and one that lives has it before its
    JobCarried. A JobDispatched is always a job's first event: what stands before it is no tail.
    """
    begin = len(events)
    for place, (_, event) in enumerate(events):
        if isinstance(event, JobDispatched):
            return events
        if isinstance(event, _BEGINNINGS):
            begin = place
            break
    before = [entry for entry in events[:begin] if isinstance(entry[1], UnknownEvent)]
    return [*before, *events[begin:]]
