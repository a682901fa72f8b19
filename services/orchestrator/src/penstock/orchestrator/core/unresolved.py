"""Jobs whose last event calls for a message elsewhere, until that message shows its effect. Pure.

A transition is two steps: the event, then what follows from it (a message in the queue, a schedule,
a dead letter). A process that dies between the two leaves the second undone. What is kept here are
the first steps that nothing has followed yet; nearly all leave again within milliseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import Enum, auto

import msgspec

from penstock.orchestrator.core.shares import Shares

_MOST_DOUBLINGS = 6


class Awaits(Enum):
    """What must exist for the job to go on, or to be found."""

    QUEUE_MESSAGE = auto()
    """A message in its queue."""
    SCHEDULE = auto()
    """A schedule kept by the broker."""
    DEAD_LETTER = auto()
    """A dead letter."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The first half of a transition, as read from the event log.

    Attributes:
        event: name of the event.
        sequence: its place in the log.
        at: POSIX seconds, broker's clock.
        queue: empty where the event does not name it.
        due_at: POSIX seconds; None for at once.
        carried_from: sequence of the original event, where this one only carries it on: nothing
            happened to the job. 0: this is the original.
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
        since: POSIX seconds from which on its effect was to be expected.
        check_at: POSIX seconds; not looked at before.
        sequence: of the latest event of the step.
        first_sequence: of the one that began it.
        share: name of the share of the table that it takes from.
    """

    __slots__ = (
        "awaits",
        "check_at",
        "due_at",
        "first_sequence",
        "job_id",
        "queue",
        "sequence",
        "share",
        "since",
        "times_made",
    )

    def __init__(self, step: Step, awaits: Awaits, patience_seconds: float) -> None:
        self.job_id = step.job_id
        self.awaits = awaits
        self.sequence = step.sequence
        self.first_sequence = step.carried_from or step.sequence
        self.queue = step.queue
        self.share = ""
        self.due_at = step.due_at
        self.since = step.at
        self.times_made = 0
        self.check_at = step.at + patience_seconds


AWAITED = {
    "JobDispatched": Awaits.QUEUE_MESSAGE,
    "JobReleased": Awaits.QUEUE_MESSAGE,
    "JobRecovered": Awaits.QUEUE_MESSAGE,
    "JobRevived": Awaits.QUEUE_MESSAGE,
    "JobMoved": Awaits.QUEUE_MESSAGE,
    "WorkflowFixed": Awaits.QUEUE_MESSAGE,
    "WorkflowContinued": Awaits.QUEUE_MESSAGE,
    "JobRetrying": Awaits.SCHEDULE,
    "JobDead": Awaits.DEAD_LETTER,
    "JobStarted": None,
    "JobCancelled": None,
    "WorkflowAdvanced": None,
    "WorkflowBlocked": None,
    "WorkflowPaused": None,
    "WorkflowCancelling": None,
    "WorkflowResumed": Awaits.QUEUE_MESSAGE,
}
"""What each event calls for; None: it shows that what was called for before has had its effect.

Other events (completions, progress) come after one of these and need not be read."""


_SUSPENDED = ("WorkflowAdvanced", "WorkflowBlocked")
"""With a timer these call for its schedule."""


class Unresolved:
    """The steps that wait, at most ``limit`` of them.

    Each queue of the settings has a share of its own, all others have one together. When a share is
    full, later ones of it are skipped; when half of those kept are resolved, the log is read again
    from the first one skipped. So memory is bounded and nothing is forgotten.

    Args:
        patience_seconds: how long a second step may take before it is looked at.
        start: sequence of the first event that will be seen.
        dead_letters_from: an earlier process has looked after the dead letters of earlier events:
            one that is missing now was removed on purpose.
        shares: which queue has which share of the table.
    """

    def __init__(
        self,
        patience_seconds: float,
        limit: int,
        start: int = 1,
        dead_letters_from: int = 0,
        shares: Shares | None = None,
    ) -> None:
        self.shares = shares or Shares()
        self.patience_seconds = patience_seconds
        self.position = start - 1
        self._limit = limit
        self._dead_letters_from = dead_letters_from
        self._most_of_share = self.shares.most(limit)
        self._held: Counter[str] = Counter()
        self._skipped: dict[str, int] = {}
        self._entries: dict[str, Entry] = {}

    def resume(self, start: int, dead_letters_from: int) -> None:
        """Goes on where an earlier process stood; see the arguments of the class."""
        self.position, self._dead_letters_from = start - 1, dead_letters_from

    def __len__(self) -> int:
        return len(self._entries)

    def see(self, step: Step) -> None:
        """The next event of the log."""
        self.position = max(self.position, step.sequence)
        awaits = AWAITED.get(step.event)
        if awaits is None and self._awaits_letter(step.job_id):
            return  # nothing but a new life may follow the end: this event does not count
        before = self._take_out(step.job_id)
        if step.carried_from and before is not None and awaits is not None:
            before.sequence = step.sequence  # it waits as before; only its place is another
            self._put(before)
            return
        if (
            awaits is Awaits.DEAD_LETTER
            and (step.carried_from or step.sequence) < self._dead_letters_from
        ):
            return
        if step.due_at is not None and (awaits is Awaits.QUEUE_MESSAGE or step.event in _SUSPENDED):
            awaits = Awaits.SCHEDULE
        if awaits is not None:
            self._add(Entry(step, awaits, self.patience_seconds))

    def _awaits_letter(self, job_id: str) -> bool:
        entry = self._entries.get(job_id)
        return entry is not None and entry.awaits is Awaits.DEAD_LETTER

    def _add(self, entry: Entry) -> None:
        entry.share = self.shares.of(entry.queue)
        is_full = self._held[entry.share] >= self._most_of_share
        if is_full or len(self._entries) >= self._limit:
            self._skipped.setdefault(entry.share, entry.sequence)
        else:
            self._put(entry)

    def _put(self, entry: Entry) -> None:
        self._entries[entry.job_id] = entry
        self._held[entry.share] += 1

    def _take_out(self, job_id: str) -> Entry | None:
        entry = self._entries.pop(job_id, None)
        if entry is not None:
            self._held[entry.share] -= 1
        return entry

    def resolve(self, entry: Entry) -> None:
        """Its message is there. A later step of the same job stays."""
        if self._entries.get(entry.job_id) is entry:
            self._take_out(entry.job_id)

    def wait_longer(self, entry: Entry, now: float) -> None:
        """Its message was made again at ``now``: looked at anew, each time after twice as long."""
        entry.times_made += 1
        entry.since = now
        entry.check_at = now + self.patience_seconds * 2 ** min(entry.times_made, _MOST_DOUBLINGS)

    def due(self, now: float) -> Iterator[Entry]:
        """Those to be looked at."""
        return (entry for entry in tuple(self._entries.values()) if entry.check_at <= now)

    def read_again_from(self) -> int | None:
        """Where to begin reading the log again, if it is time to; then forgets that."""
        if len(self._entries) > self._limit * 3 // 4:
            return None
        for share, start in self._skipped.items():
            if self._held[share] <= self._most_of_share // 2:
                del self._skipped[share]
                return start
        return None

    def cursor(self) -> int:
        """Where a process that knows nothing must begin to read."""
        first = next(iter(self._entries.values()), None)
        kept = first.sequence if first else self.position + 1
        return min(kept, *self._skipped.values()) if self._skipped else kept

    def dead_letters_from(self) -> int:
        """Dead letters of earlier events have been looked after."""
        waiting = [
            e.first_sequence for e in self._entries.values() if e.awaits is Awaits.DEAD_LETTER
        ]
        waiting += self._skipped.values()
        return max(min(waiting, default=self.position + 1), self._dead_letters_from)
