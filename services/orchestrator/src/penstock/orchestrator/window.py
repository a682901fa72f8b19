"""What leaves the event log next, and what of it must be carried further on.

::

    first ............ through | ............................................. last
    \\_ the window: read whole _/ \\_ events of jobs of the window may lie here, too _/

The window begins with the log's first message. So a job whose first event lies in it is folded from
the window alone, unless it went on behind it, which the compare-and-set of its carrying shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

import msgspec

from penstock.bus.protocol import Stored
from penstock.events.job import JOB_EVENTS
from penstock.jobs import lifecycle
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.story import read_event


class Living(msgspec.Struct, frozen=True):
    """A job to be carried.

    Attributes:
        trace: W3C ``traceparent`` of its first event, if it was traced.
        is_cut: what was too large for one event was left out.
    """

    record: JobRecord
    trace: str
    is_cut: bool = False


class Window(msgspec.Struct, frozen=True):
    """The oldest messages of the log.

    Attributes:
        through: sequence of the last of them. until: when that was stored.
        members: id of each job that may be one of a batch or graph, and the sequence of its last
            event.
        jobs: of which it holds events. wholes: noun and id of batches and graphs, of the same.
        whole_events: sequence of the last event of any of these.
        sizes: bytes of all that it holds events of, by noun and id.
    """

    through: int
    jobs: dict[str, list[Stored]]
    wholes: dict[tuple[str, str], int]
    members: dict[str, int]
    sizes: dict[tuple[str, str], int]
    until: datetime | None = None

    @property
    def whole_events(self) -> int:
        return max(self.wholes.values(), default=0)


def read(messages: Iterable[Stored]) -> Window:
    """Sorts what was read, in order of the log."""
    jobs: dict[str, list[Stored]] = {}
    wholes: dict[tuple[str, str], int] = {}
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
            wholes[noun, key] = through
    return Window(through, jobs, wholes, members, sizes, until)


def living(
    jobs: Iterable[list[Stored]], letters_from: int, is_needed: Callable[[str], bool]
) -> list[Living]:
    """The jobs that must be carried, as far as the window tells.

    Args:
        jobs: the events of each.
        letters_from: dead letters of earlier deaths were looked after.
        is_needed: whether the result of a completed job is still to be read, by its id.
    """
    found = []
    for events in jobs:
        record = lifecycle.fold((one.sequence, read_event(one, JOB_EVENTS)) for one in events)
        if record is not None and is_kept(record, letters_from, is_needed):
            found.append(Living(record, events[0].headers.get("traceparent", "")))
    return found


def is_kept(record: JobRecord, letters_from: int, is_needed: Callable[[str], bool]) -> bool:
    """Whether a job still counts: it has not ended, or its end is yet to be looked after."""
    match record.state:
        case State.DEAD:
            return record.changed_by >= letters_from
        case State.COMPLETED:
            return is_needed(record.id)
        case State.CANCELLED:
            return False
    return True
