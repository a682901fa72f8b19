"""Suspended workflows as the orchestrator follows them: ends in, who goes on out. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from sys import intern
from typing import Any, TypeVar

from penstock.events.workflow import (
    StepsScheduled,
    WorkflowAdvanced,
)
from penstock.events.workflow_memo import (
    CANCEL_KEY,
    ScheduledStep,
    StepKind,
    WaitGroup,
)
from penstock.jobs.lifecycle import JobRecord
from penstock.jobs.workflows.coded import memo

K = TypeVar("K")
V = TypeVar("V")
_MOST_DOUBLINGS = 12
_EARLY_SECONDS = 1.0
"""So much may the clock by which a timer was stored differ from that of the log."""
_NOTHING: dict[Any, Any] = {}
_NO_NUMBERS: set[int] = set()
"""Both are shared, and never filled."""
_MOST_SHARED_WAITS = 1_000
_STEP_BYTES, _UNSEEN_BYTES, _ENDED_BYTES, _GROUP_BYTES, _NUMBER_BYTES = 250, 150, 100, 150, 36
"""What is remembered of a step, a group and a number takes about as much, with short names."""
_SHORT = 100


class SuspendedWorkflow:
    """One that waits, as of its last advance.

    Attributes:
        sequence: of the event of that advance, or of the last one since that paused or resumed it.
        number: of that advance.
        inline_steps: how many it has recorded.
        queue: where it waits to go on; empty where that must be read.
        version: of the code that it is to go on with; 0 for the newest.
        fixes: how often an operator changed what it goes on from.
        wait: what it waits for.
        parts: how many parts of what it waits for were seen.
        jobs: number of each open step that is a job or batch, by key.
        signals: number and name of each open wait for a signal, by key.
        ended: number of each open step that has ended, and whether it completed.
        unseen: number and digest of each job of which no event was seen: a crash may have left it
            out, and its id may be another's.
        due_at: POSIX seconds, at which its timer fires; infinity where it has none.
        check_at: POSIX seconds; what is known of it is then compared with the log.
        is_woken: its queue message was stored.
        gives_up: a part gave up steps; these are to be cancelled after the next advance.
        is_over: it was cancelled: its steps are to be, too.
        is_cancelling: its code is to be given ``Cancelled``.
        cancel_by: POSIX seconds; it is cancelled then, whether or not it has cleaned up.
        ends_by: POSIX seconds; it takes longer than the whole of it may then.
        is_unread: an earlier process followed it, or what it waits for was forgotten; that was not
            read since.
        unread_bytes: what is unread takes about as much memory; 0 where that is not known.
        is_paused: it does not go on, and no step is dispatched, until it is resumed.
    """

    # Many wait for long: an instance takes 150 bytes, and what it has nothing of takes none.
    __slots__ = (
        "_cancelled_from",
        "_failed",
        "_long_text",
        "_meanwhile",
        "_next",
        "_other_kinds",
        "cancel_by",
        "check_at",
        "checks",
        "due_at",
        "ended",
        "ends_by",
        "fixes",
        "gives_up",
        "inline_steps",
        "is_cancelling",
        "is_over",
        "is_paused",
        "is_unread",
        "is_woken",
        "jobs",
        "number",
        "parts",
        "queue",
        "sequence",
        "signals",
        "unread_bytes",
        "unseen",
        "version",
        "wait",
    )

    def __init__(self, sequence: int, number: int, check_at: float) -> None:
        self.sequence, self.number, self.check_at = sequence, number, check_at
        self.inline_steps, self.queue = 0, ""
        self.version = self.fixes = 0
        self.wait: tuple[WaitGroup, ...] = ()
        self._next: dict[int, int] = _NOTHING
        self._failed: set[int] = _NO_NUMBERS
        self.parts = 0
        self.jobs: dict[str, int] = _NOTHING
        self._other_kinds: dict[int, StepKind] = _NOTHING
        self.signals: dict[str, tuple[int, str]] = _NOTHING
        self.ended: dict[int, bool] = _NOTHING
        self._meanwhile: dict[int, bool] | None = None
        self.unseen: dict[int, str] = _NOTHING
        self.checks = self.unread_bytes = self._long_text = 0
        self.is_woken = self.is_over = self.gives_up = self.is_paused = False
        self.is_cancelling = self.is_unread = False
        self.cancel_by = self.due_at = self.ends_by = math.inf
        self._cancelled_from = math.inf

    def advance(self, event: WorkflowAdvanced, sequence: int, check_at: float) -> bool:
        """The next advance.

        Returns:
            Whether it is known by that: nothing lies in between, nothing is to be cancelled, and
            it took note of something, where it was woken for an end. One that was woken for
            nothing runs into nothing new: where it has stored parts, it was not.
        """
        is_next = event.number == self.number + 1 and event.parts == self.parts
        is_next = is_next and not self.is_unread
        gives_up = self.gives_up or bool(event.cancelled)
        self.parts, self.gives_up = event.parts, False
        self.sequence, self.number, self.wait = sequence, event.number, _shared(event.wait)
        self.check_at, self.checks, self.is_woken = check_at, 0, False
        self.inline_steps, self.queue = event.inline_steps, intern(event.queue)
        self.version, self.fixes = event.version, event.fixes
        self.due_at = event.due_at.timestamp() if event.due_at else math.inf
        if event.ends_by is not None and self.cancel_by == math.inf:
            self.ends_by = event.ends_by.timestamp()
        self._note(event)
        given_up = set(event.cancelled)
        for key in [key for key, n in self.jobs.items() if n in given_up]:
            self._forget(key)
        self._look_anew()
        is_for_nothing = bool(self.ended) and not event.consumed and not event.parts
        return is_next and not gives_up and not is_for_nothing

    def may_run(self, at: float) -> bool:
        """Whether it can have been started at this time, POSIX seconds, by what was seen of it."""
        return not self.is_unread and (self.is_woken or at >= self.due_at - _EARLY_SECONDS)

    def read(self, record: JobRecord) -> None:
        """Takes over how it is suspended by all of its events."""
        recorded = record.workflow or memo.EMPTY
        if record.changed_by != self.sequence:
            self.is_woken, self.checks = False, 0
        self.sequence, self.number = record.changed_by, recorded.advances
        self.inline_steps, self.queue = recorded.inline_steps, intern(record.queue)
        self.version, self.fixes = recorded.version, recorded.fixes
        self.parts = sum(entry.is_part for entry in recorded.entries)
        self.due_at = record.wakes_at.timestamp() if record.wakes_at else math.inf
        self.is_paused, self.gives_up = record.is_paused, False
        self.is_over, self.is_cancelling = False, bool(recorded.cancelling)

    def see_part(self, event: StepsScheduled) -> None:
        """A part of what it waits for, while it runs."""
        self.parts += 1
        self.gives_up = self.gives_up or bool(event.cancelled)
        self._note(event)
        self._look_anew()

    def _note(self, event: WorkflowAdvanced | StepsScheduled) -> None:
        for resolution in event.consumed:
            self._forget(resolution.key)
            if resolution.key == CANCEL_KEY:
                self.is_cancelling = False
        self._add(event.scheduled)

    def _add(self, steps: Iterable[ScheduledStep]) -> None:
        for step in steps:
            self._long_text += max(0, len(step.key) + len(step.digest) - _SHORT)
            if step.is_job or step.kind == "batch":
                self.jobs = _with(self.jobs, intern(step.key), step.n)
                if step.kind != "job":
                    self._other_kinds = _with(self._other_kinds, step.n, step.kind)
            elif step.kind == "signal":
                self.signals = _with(self.signals, intern(step.key), (step.n, intern(step.digest)))
            if step.is_job:
                self.unseen = _with(self.unseen, step.n, step.digest)

    def _forget(self, key: str) -> None:
        n = self.jobs.pop(key, None)
        if n is not None:
            self.ended.pop(n, None)
            self.unseen.pop(n, None)
            self._other_kinds.pop(n, None)
        self.signals.pop(key, None)

    @property
    def size(self) -> int:
        """What is remembered of what it waits for, in bytes, roughly."""
        return (
            _STEP_BYTES * (len(self.jobs) + len(self.signals))
            + _UNSEEN_BYTES * len(self.unseen)
            + _ENDED_BYTES * len(self.ended)
            + _GROUP_BYTES * len(self.wait)
            + _NUMBER_BYTES * sum(len(group.steps) for group in self.wait)
            + self._long_text
            + len(self.queue)
        )

    def forget_wait(self, size: int, not_before: float) -> None:
        """Forgets what it waits for, which is read from the log when it is needed.

        Args:
            size: of what is forgotten, in bytes.
            not_before: POSIX seconds, before which it is not read for the lapse of time alone.
        """
        self.wait, self.queue = (), ""
        self.jobs = self.signals = self._other_kinds = self.unseen = self.ended = _NOTHING
        self._next, self._failed, self._long_text = _NOTHING, _NO_NUMBERS, 0
        self.is_unread, self.unread_bytes = True, size
        self.check_at = max(self.check_at, not_before)

    def awaits(self, signal: str) -> bool:
        """Whether one of its open steps waits for a signal of this name."""
        return any(name == signal for _, name in self.signals.values())

    @property
    def awaits_batches(self) -> bool:
        """Whether one of its open steps is a batch."""
        return "batch" in self._other_kinds.values()

    @property
    def kinds(self) -> dict[int, StepKind]:
        """What each of its open steps is that is a job or batch, by number."""
        return {n: self._other_kinds.get(n, "job") for n in self.jobs.values()}

    @property
    def is_due(self) -> bool:
        """Whether it can go on, and was not woken yet."""
        is_held = self.is_woken or self.is_over or self.is_paused
        if is_held:
            return False
        return self.is_cancelling or any(map(self._holds, range(len(self.wait))))

    def _holds(self, index: int) -> bool:
        """One group of what it waits for, as `memo.goes_on` judges it.

        Looks at each step once, however often it is asked: a join may have thousands.
        """
        group = self.wait[index]
        if group.or_any_failed and not self._failed.isdisjoint(group.steps):
            return True
        place = self._next.get(index, 0)
        while place < len(group.steps):
            if group.steps[place] not in self.ended:
                if place:
                    self._next = _with(self._next, index, place)
                return False
            place += 1
        return True

    def _look_anew(self) -> None:
        """What it waits for has changed, or a step lives again."""
        self._next = _NOTHING
        failed = {n for n, completed in self.ended.items() if not completed}
        self._failed = failed or _NO_NUMBERS

    @property
    def is_unsettled(self) -> bool:
        """Whether something is under way that another process would have to begin again."""
        is_cancelled = self.cancel_by < math.inf
        return self.is_woken or self.is_over or self.is_due or is_cancelled

    @property
    def look_at(self) -> float:
        """POSIX seconds, at which something is to be done for its times alone."""
        return min(self.check_at, self.cancel_by, self.ends_by)

    @property
    def needed_from(self) -> int:
        """Sequence from which on a process that knows nothing of it must read."""
        return int(min(self.sequence, self._cancelled_from))

    @property
    def has_living_jobs(self) -> bool:
        """Whether a job is open whose end was not seen."""
        return any(n not in self.ended for n in self.jobs.values())

    def see_end(self, n: int, *, completed: bool) -> None:
        """The job of a step ended."""
        self.ended = _with(self.ended, n, completed)
        if self._meanwhile is not None:
            self._meanwhile[n] = completed
        if not completed:
            self._failed = _including(self._failed, n)
        elif n in self._failed:
            self._failed = self._failed - {n} or _NO_NUMBERS
        self.unseen.pop(n, None)

    def see_requeue(self, n: int) -> None:
        """The job of a step lives again."""
        self.ended.pop(n, None)
        if self._meanwhile is not None:
            self._meanwhile.pop(n, None)
        self._look_anew()

    def begin_comparing(self) -> None:
        """What is open is read from now on: ends that come before `see_all` count, too."""
        self._meanwhile = {}

    def see_all(
        self,
        wait: tuple[WaitGroup, ...],
        steps: Collection[ScheduledStep],
        ended: Mapping[int, bool],
    ) -> None:
        """What it waits for, what is open, and how that stands in the log."""
        self.wait, self.is_unread = _shared(wait), False
        self.unread_bytes = self._long_text = 0
        self.jobs = self.signals = self._other_kinds = _NOTHING
        self.ended, self.unseen = {**ended, **(self._meanwhile or {})} or _NOTHING, _NOTHING
        self._meanwhile = None
        self._add(steps)
        self.observed(self.ended)
        self._look_anew()

    def observed(self, numbers: Iterable[int]) -> None:
        """Events of these jobs were seen."""
        for n in numbers:
            self.unseen.pop(n, None)
        self.unseen = self.unseen or _NOTHING

    def paused(self, sequence: int) -> None:
        """It was paused: messages made before are void."""
        self.sequence, self.is_paused, self.is_woken = sequence, True, False

    def resumed(self, sequence: int) -> None:
        """It goes on: what was held back meanwhile is due at once."""
        self.sequence, self.is_paused, self.is_woken = sequence, False, False
        self.check_at, self.checks = 0.0, 0

    def cancelling(self, sequence: int, until: float) -> None:
        """It is being cancelled: its code goes on at once, whatever it waits for."""
        self.ends_by = math.inf
        self.sequence, self.is_paused, self.is_woken = sequence, False, False
        self.is_cancelling, self.cancel_by, self._cancelled_from = True, until, sequence

    def woken(self, check_at: float) -> None:
        """Its queue message was stored."""
        self.is_woken, self.check_at = True, check_at

    def checked(self, now: float, patience_seconds: float) -> None:
        """It was compared with the log: the next time after twice as long."""
        self.check_at = now + patience_seconds * 2 ** min(self.checks, _MOST_DOUBLINGS)
        self.checks += 1


def _with(mapping: dict[K, V], key: K, value: V) -> dict[K, V]:
    own = mapping or {}
    own[key] = value
    return own


def _including(numbers: set[int], n: int) -> set[int]:
    own = numbers or set()
    own.add(n)
    return own


def _shared(wait: tuple[WaitGroup, ...]) -> tuple[WaitGroup, ...]:
    """The same for all that wait for one step of that number, as most do."""
    is_usual = len(wait) == 1 and len(wait[0].steps) == 1
    return _first_equal(wait) if is_usual else wait


@lru_cache(_MOST_SHARED_WAITS)
def _first_equal(wait: tuple[WaitGroup, ...]) -> tuple[WaitGroup, ...]:
    return wait
