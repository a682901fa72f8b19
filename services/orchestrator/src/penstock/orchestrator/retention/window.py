"""What leaves the event log next, and what of it must be carried further on.

::

    first ............ through | ............................................. last
    \\_ the window: read whole _/ \\_ events of jobs of the window may lie here, too _/

The window begins with the log's first message. So a job whose first event lies in it is folded from
the window alone, unless it went on behind it, which the compare-and-set of its carrying shows.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from datetime import datetime

import msgspec

from penstock.bus.protocol import Stored
from penstock.events.job import JOB_EVENTS, JobCarried
from penstock.jobs import lifecycle
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.lifecycle import JobRecord, State

_CARRIED = f".{JobCarried.__name__}"


class Living(msgspec.Struct, frozen=True):
    """A job to be carried.

    Attributes:
        trace: W3C ``traceparent`` of its first event, if it was traced.
        is_cut: what was too large for one event was left out.
        needs_letter: it is dead, and lives again only if its dead letter is requeued.
    """

    record: JobRecord
    trace: str
    is_cut: bool = False
    needs_letter: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether all parts of its memo were read."""
        return not (self.record.workflow and self.record.workflow.following)


class Window(msgspec.Struct, frozen=True):
    """The oldest messages of the log.

    Attributes:
        through: sequence of the last of them.
        until: when that was stored.
        members: id of each job that may be one of a batch or graph, and the sequence of its last
            event.
        jobs: of which it holds events.
        workflows: noun and id of batches and graphs, of the same.
        workflow_events: sequence of the last event of any of these.
        inboxes: ids of coded workflows that were sent something.
        sizes: bytes of all that it holds events of, by noun and id.
    """

    through: int
    jobs: dict[str, list[Stored]]
    workflows: dict[tuple[str, str], int]
    members: dict[str, int]
    sizes: dict[tuple[str, str], int]
    until: datetime | None = None
    inboxes: frozenset[str] = frozenset()

    @property
    def workflow_events(self) -> int:
        return max(self.workflows.values(), default=0)


def read(messages: Iterable[Stored]) -> Window:
    """Sorts what was read, in order of the log."""
    jobs: dict[str, list[Stored]] = {}
    workflows: dict[tuple[str, str], int] = {}
    members: dict[str, int] = {}
    sizes: dict[tuple[str, str], int] = {}
    through, until = 0, None
    for stored in messages:
        through, until = stored.sequence, stored.at
        *_, noun, key, _ = ("", "", "", *stored.subject.rsplit(".", 3))
        size = len(stored.body) + len(stored.subject)
        sizes[noun, key] = sizes.get((noun, key), 0) + size
        if noun == "job":
            jobs.setdefault(key, []).append(stored)
            if "_" in key:
                members[key] = through
        elif noun in ("batch", "graph"):
            workflows[noun, key] = through
    inboxes = frozenset(key for noun, key in sizes if noun == "workflow")
    return Window(through, jobs, workflows, members, sizes, until, inboxes)


def living(
    window: Window,
    ahead: Window,
    stay: Container[tuple[str, str]],
    dead_letters_from: int,
    is_needed: Callable[[str], bool],
) -> list[Living]:
    """The jobs that must be carried, as far as it was read.

    Args:
        ahead: what follows the window, as far as it was read: most jobs that went on behind the
            window ended in it.
        stay: noun and id of what is not carried.
        dead_letters_from: dead letters of earlier deaths were looked after.
        is_needed: whether how an ended job ended is still to be read, by its id.
    """
    living = []
    for job_id, begun in window.jobs.items():
        events = [*begun, *ahead.jobs.get(job_id, ())]
        is_left = events[-1].sequence > window.through  # its end stays in the log, with the result
        if ("job", job_id) in stay or (
            _has_completed(events) and (is_left or not is_needed(job_id))
        ):
            continue
        record = lifecycle.fold((one.sequence, read_event(one, JOB_EVENTS)) for one in events)
        if record is None:
            continue
        if record.changed_by > window.through:
            is_living = record.state is not State.COMPLETED
        else:
            is_living = is_kept(record, dead_letters_from, is_needed)
        may_return = not is_living and record.is_workflow and record.state is State.DEAD
        if (is_living or may_return) and not _was_carried(events, window.through):
            trace = events[0].headers.get("traceparent", "")
            living.append(Living(record, trace, needs_letter=may_return))
    return living


_USUAL = ("JobDispatched", "JobStarted", "JobCompleted")


def _has_completed(events: Sequence[Stored]) -> bool:
    """For most jobs the names of their events suffice, and none has to be decoded."""
    return len(events) == len(_USUAL) and all(
        one.subject.endswith(name) for one, name in zip(events, _USUAL, strict=True)
    )


def _was_carried(events: Sequence[Stored], through: int) -> bool:
    """By another orchestrator, or by a pass that was cut off: the record lies behind the window."""
    return any(one.sequence > through and one.subject.endswith(_CARRIED) for one in events)


def is_kept(record: JobRecord, dead_letters_from: int, is_needed: Callable[[str], bool]) -> bool:
    """Whether a job still counts: it has not ended, or its end is yet to be looked after."""
    is_unattended = record.state is State.DEAD and record.changed_by >= dead_letters_from
    return not record.state.ended or is_unattended or is_needed(record.id)
