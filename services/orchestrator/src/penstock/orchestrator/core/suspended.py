"""Suspended workflows as the orchestrator follows them: ends in, who goes on out. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from penstock.events.workflow import (
    CANCEL_KEY,
    ScheduledStep,
    StepKind,
    StepsScheduled,
    WaitGroup,
    WorkflowAdvanced,
)

_MOST_DOUBLINGS = 12


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
        kinds: what each of them is, by its number.
        signals: number and name of each open wait for a signal, by key.
        ended: number of each open step that has ended, and whether it completed.
        unseen: numbers of jobs of which no event was seen: a crash may have left them out.
        check_at: POSIX seconds; what is known of it is then compared with the log.
        is_woken: its queue message was stored.
        gives_up: a part gave up steps; these are to be cancelled after the next advance.
        is_over: it was cancelled: its steps are to be, too.
        is_cancelling: its code is to be given ``Cancelled``.
        cancel_by: POSIX seconds; it is cancelled then, whether or not it has cleaned up.
        is_paused: it does not go on, and no step is dispatched, until it is resumed.
    """

    def __init__(self, sequence: int, number: int, check_at: float) -> None:
        self.sequence, self.number, self.check_at = sequence, number, check_at
        self.inline_steps, self.queue = 0, ""
        self.version = self.fixes = 0
        self.wait: tuple[WaitGroup, ...] = ()
        self._next: list[int] = []
        self._failed: set[int] = set()
        self.parts = 0
        self.jobs: dict[str, int] = {}
        self.kinds: dict[int, StepKind] = {}
        self.signals: dict[str, tuple[int, str]] = {}
        self.ended: dict[int, bool] = {}
        self.unseen: set[int] = set()
        self.checks = 0
        self.is_woken = self.is_over = self.gives_up = self.is_paused = False
        self.is_cancelling = False
        self.cancel_by = math.inf
        self._cancelled_from = math.inf

    def advance(self, event: WorkflowAdvanced, sequence: int, check_at: float) -> bool:
        """The next advance.

        Returns:
            Whether it is known by that: nothing lies in between, and nothing is to be cancelled.
        """
        is_next = event.number == self.number + 1 and event.parts == self.parts
        gives_up = self.gives_up or bool(event.cancelled)
        self.parts, self.gives_up = event.parts, False
        self.sequence, self.number, self.wait = sequence, event.number, event.wait
        self.check_at, self.checks, self.is_woken = check_at, 0, False
        self.inline_steps, self.queue = event.inline_steps, event.queue
        self.version, self.fixes = event.version, event.fixes
        self._note(event)
        given_up = set(event.cancelled)
        for key in [key for key, n in self.jobs.items() if n in given_up]:
            self._forget(key)
        self._look_anew()
        return is_next and not gives_up

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
            if step.is_job:
                self.jobs[step.key] = step.n
                self.unseen.add(step.n)
                self.kinds[step.n] = step.kind
            elif step.kind == "batch":
                self.jobs[step.key] = step.n
                self.kinds[step.n] = step.kind
            elif step.kind == "signal":
                self.signals[step.key] = step.n, step.digest

    def _forget(self, key: str) -> None:
        n = self.jobs.pop(key, None)
        if n is not None:
            self.ended.pop(n, None)
            self.unseen.discard(n)
            self.kinds.pop(n, None)
        self.signals.pop(key, None)

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
        while self._next[index] < len(group.steps):
            if group.steps[self._next[index]] not in self.ended:
                return False
            self._next[index] += 1
        return True

    def _look_anew(self) -> None:
        """What it waits for has changed, or a step lives again."""
        self._next = [0] * len(self.wait)
        self._failed = {n for n, completed in self.ended.items() if not completed}

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
        self.ended[n] = completed
        if not completed:
            self._failed.add(n)
        self.unseen.discard(n)

    def see_requeue(self, n: int) -> None:
        """The job of a step lives again."""
        self.ended.pop(n, None)
        self._look_anew()

    def see_all(
        self,
        wait: tuple[WaitGroup, ...],
        steps: Collection[ScheduledStep],
        ended: Mapping[int, bool],
    ) -> None:
        """What it waits for, what is open, and how that stands in the log."""
        self.wait = wait
        self.jobs, self.signals, self.ended = {}, {}, dict(ended)
        self.unseen, self.kinds = set(), {}
        self._add(steps)
        self.unseen -= self.ended.keys()
        self._look_anew()

    def paused(self, sequence: int) -> None:
        """It was paused: messages made before are void."""
        self.sequence, self.is_paused, self.is_woken = sequence, True, False

    def resumed(self, sequence: int) -> None:
        """It goes on: what was held back meanwhile is due at once."""
        self.sequence, self.is_paused, self.is_woken = sequence, False, False
        self.check_at, self.checks = 0.0, 0

    def cancelling(self, sequence: int, until: float) -> None:
        """A client cancels it: its code goes on at once, whatever it waits for."""
        self.sequence, self.is_paused, self.is_woken = sequence, False, False
        self.is_cancelling, self.cancel_by, self._cancelled_from = True, until, sequence

    def woken(self, check_at: float) -> None:
        """Its queue message was stored."""
        self.is_woken, self.check_at = True, check_at

    def checked(self, now: float, patience_seconds: float) -> None:
        """It was compared with the log: the next time after twice as long."""
        self.check_at = now + patience_seconds * 2 ** min(self.checks, _MOST_DOUBLINGS)
        self.checks += 1
