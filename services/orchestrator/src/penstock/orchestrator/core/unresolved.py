"""Jobs whose last event calls for a message elsewhere, until that message shows its effect. Pure.

A transition is two steps: the event, then what follows from it (a message in the queue, a schedule,
a dead letter). A process that dies between the two leaves the second undone. What is kept here are
the first steps that nothing has followed yet; nearly all leave again within milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto

import msgspec

_MOST_DOUBLINGS = 6


class Awaits(Enum):
    """What must exist for the job to go on, or to be found."""

    LINE = auto()
    """A message in its queue."""
    SCHEDULE = auto()
    """A schedule kept by the broker."""
    LETTER = auto()
    """A dead letter."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The first half of a transition, as the event log tells it.

    Attributes:
        event: name of the event; sequence: its place in the log; at: POSIX seconds, broker's clock.
        queue: empty where the event does not say. due_at: POSIX seconds, None for at once.
        carried_from: sequence of the event that first told of it, where this one only carries it
            on: nothing happened to the job. 0: this is the first.
    """

    job_id: str
    event: str
    sequence: int
    at: float
    queue: str = ""
    due_at: float | None = None
    carried_from: int = 0


class Entry:
    """A step that nothing has followed yet.

    Attributes:
        since: POSIX seconds: from when on its effect was to be expected.
        check_at: not to be looked at before.
        sequence: of the latest event that tells of it. first_sequence: of the one that began it.
    """

    __slots__ = (
        "awaits",
        "check_at",
        "due_at",
        "first_sequence",
        "job_id",
        "queue",
        "sequence",
        "since",
        "times_made",
    )

    def __init__(self, step: Step, awaits: Awaits, patience_seconds: float) -> None:
        self.job_id = step.job_id
        self.awaits = awaits
        self.sequence = step.sequence
        self.first_sequence = step.carried_from or step.sequence
        self.queue = step.queue
        self.due_at = step.due_at
        self.since = step.at
        self.times_made = 0
        self.check_at = step.at + patience_seconds


AWAITED = {
    "JobDispatched": Awaits.LINE,
    "JobReleased": Awaits.LINE,
    "JobRecovered": Awaits.LINE,
    "JobRevived": Awaits.LINE,
    "JobRetrying": Awaits.SCHEDULE,
    "JobDead": Awaits.LETTER,
    "JobStarted": None,
    "JobCancelled": None,
}
"""What each event calls for; None: it shows that what was called for before has had its effect.

Other events (completions, progress) come after one of these and need not be read."""


class Unresolved:
    """The steps that wait, at most ``limit`` of them.

    When there are more, later ones are passed over; when half of those kept are gone, the log is
    read again from the first one passed over. So memory is bounded and nothing is forgotten.

    Args:
        patience_seconds: how long a second step may take before somebody looks.
        start: sequence of the first event that will be seen.
        letters_from: dead letters of earlier events were looked after by an earlier process: one
            that is missing now was removed on purpose.
    """

    def __init__(
        self, patience_seconds: float, limit: int, start: int = 1, letters_from: int = 0
    ) -> None:
        self.patience_seconds = patience_seconds
        self.position = start - 1
        self._limit = limit
        self._letters_from = letters_from
        self._passed_over: int | None = None
        self._entries: dict[str, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def see(self, step: Step) -> None:
        """The next event of the log."""
        self.position = max(self.position, step.sequence)
        awaits = AWAITED.get(step.event)
        if awaits is None and self._awaits_letter(step.job_id):
            return  # nothing but a new life may follow the end: this event does not count
        before = self._entries.pop(step.job_id, None)
        if step.carried_from and before is not None and awaits is not None:
            before.sequence = step.sequence  # it waits as before; only its place is another
            self._entries[step.job_id] = before
            return
        if awaits is Awaits.LETTER and (step.carried_from or step.sequence) < self._letters_from:
            return
        if awaits is Awaits.LINE and step.due_at is not None:
            awaits = Awaits.SCHEDULE
        if awaits is not None:
            self._add(Entry(step, awaits, self.patience_seconds))

    def _awaits_letter(self, job_id: str) -> bool:
        entry = self._entries.get(job_id)
        return entry is not None and entry.awaits is Awaits.LETTER

    def _add(self, entry: Entry) -> None:
        if self._passed_over is None and len(self._entries) < self._limit:
            self._entries[entry.job_id] = entry
        elif self._passed_over is None:
            self._passed_over = entry.sequence

    def resolve(self, entry: Entry) -> None:
        """Its message is there. A later step of the same job stays."""
        if self._entries.get(entry.job_id) is entry:
            del self._entries[entry.job_id]

    def wait_longer(self, entry: Entry, now: float) -> None:
        """Its message was made again at ``now``: looked at anew, each time after twice as long."""
        entry.times_made += 1
        entry.since = now
        entry.check_at = now + self.patience_seconds * 2 ** min(entry.times_made, _MOST_DOUBLINGS)

    def due(self, now: float) -> Iterator[Entry]:
        """Those that somebody should look at."""
        return (entry for entry in tuple(self._entries.values()) if entry.check_at <= now)

    def read_again_from(self) -> int | None:
        """Where to begin reading the log again, if it is time to; then forgets that."""
        if self._passed_over is None or len(self._entries) > self._limit // 2:
            return None
        start, self._passed_over = self._passed_over, None
        return start

    def cursor(self) -> int:
        """Where a process that knows nothing must begin to read."""
        first = next(iter(self._entries.values()), None)
        kept = first.sequence if first else self.position + 1
        return kept if self._passed_over is None else min(kept, self._passed_over)

    def letters_from(self) -> int:
        """Dead letters of earlier events have been looked after."""
        waiting = [e.first_sequence for e in self._entries.values() if e.awaits is Awaits.LETTER]
        if self._passed_over is not None:
            waiting.append(self._passed_over)
        return max(min(waiting, default=self.position + 1), self._letters_from)
