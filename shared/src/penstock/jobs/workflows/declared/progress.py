"""What is to be done for a workflow, from its steps and how their jobs ended. Pure.

Everything follows from how jobs ended, never from when or in which order: a step is judged once
all that it needs have ended, and sees the context as the steps before it left it. So a skipped step
is not recorded anywhere: each process that asks comes to the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec
from msgspec import UNSET

from penstock.events.condition import Path
from penstock.events.graph import GraphStep, Join, OnFailure
from penstock.jobs.batches.slots import Slot
from penstock.jobs.workflows.declared import step_state
from penstock.jobs.workflows.declared.step_state import BAD, ENDED, StepState
from penstock.jobs.workflows.declared.values import ConditionError, holds, inside

_OF_SLOT = {
    Slot.PENDING: StepState.RUNNING,
    Slot.COMPLETED: StepState.COMPLETED,
    Slot.FAILED: StepState.FAILED,
    Slot.CANCELLED: StepState.CANCELLED,
}
_MOST_NAMED = 12

STOPPED = "cancelled"
"""Begins the reason of a workflow that ends because it was stopped."""


class Unreadable(msgspec.Struct, frozen=True):
    """In place of a result: why it is not available."""

    reason: str


class End(msgspec.Struct, frozen=True):
    """How a workflow ends.

    Attributes:
        step: position of the step at which it failed; None if none did.
        reason: empty if it completed.
    """

    step: int | None = None
    reason: str = ""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a workflow is, and what is due.

    Attributes:
        states: of all steps, by position.
        ready: steps whose jobs are to be dispatched now.
        unread: completed steps whose results are needed to decide about others.
        values: the results of joins that have one.
        end: set if nothing is left to be done.
    """

    states: tuple[StepState, ...]
    ready: tuple[int, ...] = ()
    unread: tuple[int, ...] = ()
    values: Mapping[int, Any] = {}
    end: End | None = None


class Plan:
    """The steps of a workflow that was started.

    Args:
        steps: in an order in which none needs a later one; compensations last.
        on_failure: whether other steps begin after one has failed.
        context: what the steps share, at the start.
    """

    def __init__(
        self,
        steps: Sequence[GraphStep],
        on_failure: OnFailure = "stop",
        context: Mapping[str, Any] | None = None,
    ) -> None:
        self.steps, self.on_failure, self.context = tuple(steps), on_failure, dict(context or {})
        self.undoing = {
            step.compensates: position
            for position, step in enumerate(self.steps)
            if step.compensates is not None
        }

    @cached_property
    def _before(self) -> list[int]:
        """Of each step those that have ended before it, as bits; its own for a compensation."""
        before: list[int] = []
        for step in self.steps:
            own = step.needs if step.compensates is None else (step.compensates,)
            bits = 0
            for need in own:
                bits |= before[need] | 1 << need
            before.append(bits)
        return before

    def setters(self, key: str, position: int | None = None) -> list[int]:
        """Steps that set a key of the context, in order.

        Args:
            key: of the context.
            position: only those that have ended before this step; None: all.
        """
        bits = -1 if position is None else self._before[position]
        return [
            earlier
            for earlier, step in enumerate(self.steps)
            if key in step.sets and bits >> earlier & 1
        ]

    def progress(
        self,
        slots: Mapping[int, Slot],
        results: Mapping[int, Any],
        dispatched: Iterable[int] = (),
        refused: Mapping[int, str] | None = None,
        is_cancelled: bool = False,
    ) -> Progress:
        """What is due.

        Args:
            slots: how jobs stand, by the positions of their steps.
            results: of completed steps, as far as they were read; or :class:`Unreadable`.
            dispatched: steps whose jobs exist, although ``slots`` does not know of them yet.
            refused: why the jobs of steps cannot be dispatched, by their positions.
            is_cancelled: no step is to begin any more.
        """
        judging = _Judging(self, slots, results, frozenset(dispatched), refused or {})
        return judging.progress(is_cancelled)

    def value(self, path: Path, position: int, outcomes: Outcomes) -> Any:
        """What a step's path leads to; ``UNSET`` where there is no such value.

        Raises:
            ConditionError: a result that is needed for it is not readable.
        """
        root, name, *rest = path
        if root == "context":
            return inside(self._in_context(str(name), position, outcomes), rest)
        source = self.source(int(name), outcomes.states)
        return UNSET if source is None else inside(outcomes.result(source), rest)

    def needed(self, path: Path, position: int, states: Sequence[StepState]) -> set[int]:
        """The steps whose results a step's path may lead to."""
        root, name, *_ = path
        if root == "context":
            setters = self.setters(str(name), position)
            return {setter for setter in setters if states[setter] is StepState.COMPLETED}
        source = self.source(int(name), states)
        return set() if source is None else {source}

    def _in_context(self, key: str, position: int | None, outcomes: Outcomes) -> Any:
        value = self.context.get(key, UNSET)
        for setter in self.setters(key, position):
            if outcomes.states[setter] is StepState.COMPLETED:
                part = inside(outcomes.result(setter), self.steps[setter].sets[key])
                value = value if part is UNSET else part
        return value

    def source(self, position: int, states: Sequence[StepState]) -> int | None:
        """The step whose result is that of this one; None where there is none."""
        step = self.steps[position]
        if step.join is Join.ALL or states[position] is not StepState.COMPLETED:
            return None
        if step.join is not Join.BRANCH:
            return position
        chosen = (need for need in step.needs if states[need] is StepState.COMPLETED)
        return next((self.source(need, states) for need in chosen), None)


class Outcomes(msgspec.Struct, frozen=True):
    """States and results of steps, as far as they are settled."""

    states: Sequence[StepState]
    results: Mapping[int, Any]

    def result(self, position: int) -> Any:
        """Raises ConditionError."""
        value = self.results.get(position, UNSET)
        if isinstance(value, Unreadable):
            raise ConditionError(value.reason)
        return value


class _Judging:
    """One pass over the steps."""

    def __init__(
        self,
        plan: Plan,
        slots: Mapping[int, Slot],
        results: Mapping[int, Any],
        dispatched: frozenset[int],
        refused: Mapping[int, str],
    ) -> None:
        self._plan, self._slots, self._dispatched = plan, slots, dispatched
        self._results, self._values = dict(results), dict[int, Any]()
        self._states: list[StepState] = []
        self._unread: set[int] = set()
        self._refused = refused
        self._errors: dict[int, str] = {}

    def progress(self, is_cancelled: bool) -> Progress:
        for position in range(len(self._plan.steps)):
            self._states.append(self._state(position))
        failed = self._failed()
        is_undoing = any(position in self._slots for position in self._plan.undoing.values())
        halted = is_cancelled or (failed is not None and self._halts())
        if halted:
            self._give_up_waits()
        halted = halted or is_undoing
        if StepState.RUNNING in self._states or self._unread:
            return self._due(halted)
        if not halted and StepState.READY in self._states:
            return self._due(halted)
        if (blocked := self._blocked()) is None and failed is None and not halted:
            return self._ended(End())
        return self._undone(self._end(failed, blocked, is_cancelled))

    def _give_up_waits(self) -> None:
        """What waits for a time or a signal is as if it had not begun."""
        for position, step in enumerate(self._plan.steps):
            if step.wait is not None and self._states[position] is StepState.RUNNING:
                self._states[position] = StepState.WAITING

    def _halts(self) -> bool:
        return self._plan.on_failure == "stop"

    # --- one step ---------------------------------------------------------------------------------
    def _state(self, position: int) -> StepState:
        step = self._plan.steps[position]
        if position in self._refused:
            return StepState.FAILED
        if (slot := self._slots.get(position)) is not None and slot in _OF_SLOT:
            return _OF_SLOT[slot]
        if position in self._dispatched:
            return StepState.RUNNING
        if step.compensates is not None:
            return StepState.WAITING
        needs = {self._states[need] for need in step.needs}
        if not needs <= ENDED:
            return StepState.WAITING
        judged = step_state.judged(step.rule, needs)
        if judged is StepState.READY and step.when is not None:
            judged = self._if_condition_holds(position, step)
        if judged is StepState.READY and step.join is not None:
            return self._joined(position, step)
        return judged

    def _joined(self, position: int, step: GraphStep) -> StepState:
        """A join ends at once; its result is an object of what it reads."""
        if step.join is not Join.VALUES:
            return StepState.COMPLETED
        if not self._can_read(position, step.reads.values()):
            return StepState.WAITING
        outcomes = Outcomes(self._states, self._results)
        try:
            values = {
                name: value
                for name, path in step.reads.items()
                if (value := self._plan.value(path, position, outcomes)) is not UNSET
            }
        except ConditionError as error:
            self._errors[position] = str(error)
            return StepState.FAILED
        self._results[position] = self._values[position] = values
        return StepState.COMPLETED

    def _can_read(self, position: int, paths: Iterable[Path]) -> bool:
        """Whether all results were read that the paths may lead to; else they are to be read."""
        needed = set[int]().union(
            *(self._plan.needed(path, position, self._states) for path in paths)
        )
        unread = needed - self._results.keys()
        self._unread |= unread
        return not unread

    def _if_condition_holds(self, position: int, step: GraphStep) -> StepState:
        assert step.when is not None
        if not self._can_read(position, step.when.paths()):
            return StepState.WAITING
        outcomes = Outcomes(self._states, self._results)
        try:
            condition = holds(step.when, lambda path: self._plan.value(path, position, outcomes))
        except ConditionError as error:
            self._errors[position] = f"its condition: {error}"
            return StepState.FAILED
        return StepState.READY if condition else StepState.SKIPPED

    # --- all steps --------------------------------------------------------------------------------
    def _due(self, halted: bool) -> Progress:
        ready = [at for at, state in enumerate(self._states) if state is StepState.READY]
        return Progress(
            states=self._shown() if halted else tuple(self._states),
            ready=() if halted else tuple(ready),
            unread=tuple(sorted(self._unread)),
            values=self._values,
        )

    def _shown(self) -> tuple[StepState, ...]:
        """Of a workflow in which no step begins any more: none is ready."""
        waiting = StepState.WAITING
        return tuple(waiting if state is StepState.READY else state for state in self._states)

    def _failed(self) -> int | None:
        failures = (StepState.FAILED, StepState.CANCELLED)
        failed = [
            position
            for position, step in enumerate(self._plan.steps)
            if self._states[position] in failures and not step.may_fail and step.compensates is None
        ]
        refused = [position for position in failed if position in self._refused]
        return next(iter((*refused, *failed)), None)

    def _blocked(self) -> int | None:
        """The last step that can no longer run, so that the way to it is the longest."""
        blocked = [
            position
            for position, step in enumerate(self._plan.steps)
            if self._states[position] is StepState.BLOCKED and not step.may_fail
        ]
        return blocked[-1] if blocked else None

    def _end(self, failed: int | None, blocked: int | None, is_cancelled: bool) -> End:
        if is_cancelled:
            return End(reason=STOPPED)
        path = self._path(blocked) if blocked is not None and not self._halts() else []
        if failed is None and blocked is not None:
            path = path or self._path(blocked)
            failed = path[0]
        if failed is None:
            return End(reason="steps that had completed were undone")
        reason = f"step {self._plan.steps[failed].name!r} {self._how(failed)}"
        reason = self._refused.get(failed, reason)
        if path:
            reason += f"; can no longer run: {self._named(path)}"
        return End(failed, reason)

    def _how(self, position: int) -> str:
        if position in self._errors:
            return f"failed: {self._errors[position]}"
        if (wait := self._plan.steps[position].wait) is not None:
            in_vain = f"got no signal {wait.signal!r} in time"
            return "was not approved" if wait.is_approval else in_vain
        return "was cancelled" if self._states[position] is StepState.CANCELLED else "failed"

    def _path(self, position: int) -> list[int]:
        """From the step that failed to one that cannot run because of it."""
        path = [position]
        while self._states[path[0]] is StepState.BLOCKED:
            needs = self._plan.steps[path[0]].needs
            path.insert(0, next(need for need in needs if self._states[need] in BAD))
        return path

    def _named(self, path: Sequence[int]) -> str:
        names = [self._plan.steps[position].name for position in path]
        if len(names) > _MOST_NAMED:
            half = _MOST_NAMED // 2
            names = [*names[:half], "…", *names[-half:]]
        return " → ".join(names)

    # --- compensation -----------------------------------------------------------------------------
    def _undone(self, end: End) -> Progress:
        """Undoes what had completed, the last first, one after another; then it has ended."""
        self._states = list(self._shown())
        undoing = sorted(self._plan.undoing.items(), reverse=True)
        for undone, position in undoing:
            if self._states[undone] is not StepState.COMPLETED:
                continue
            if self._states[position] is StepState.WAITING:
                self._states[position] = StepState.READY
                return Progress(states=tuple(self._states), ready=(position,), values=self._values)
        failures = [
            self._plan.steps[undone].name
            for undone, position in undoing
            if self._states[position] in BAD
        ]
        if failures:
            reason = f"{end.reason}; not undone: {', '.join(map(repr, failures[:_MOST_NAMED]))}"
            end = End(end.step, reason)
        return self._ended(end)

    def _ended(self, end: End) -> Progress:
        """What has not begun by now never will."""
        for position in self._plan.undoing.values():
            if self._states[position] is StepState.WAITING:
                self._states[position] = StepState.SKIPPED
        return Progress(states=tuple(self._states), end=end, values=self._values)
