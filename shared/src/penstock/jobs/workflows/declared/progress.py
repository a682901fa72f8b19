"""What is to be done for a workflow, from its steps and how their jobs ended. Pure.

Everything follows from how jobs ended, never from when or in which order: a step is judged once
all that it needs have ended, and sees the context as the steps before it left it. So a skipped step
is not recorded anywhere: each process that asks comes to the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec
from msgspec import UNSET

from penstock.events.condition import Path
from penstock.events.graph import GraphStep, Join, OnFailure
from penstock.jobs.batches.slots import Slot
from penstock.jobs.workflows.declared import bounds, step_state
from penstock.jobs.workflows.declared.outcomes import Outcomes, readable
from penstock.jobs.workflows.declared.remembered import Remembered
from penstock.jobs.workflows.declared.step_graph import StepGraph, positions_of
from penstock.jobs.workflows.declared.step_state import BAD, ENDED, StepState
from penstock.jobs.workflows.declared.values import ConditionError, holds

_OF_SLOT = {
    Slot.PENDING: StepState.RUNNING,
    Slot.COMPLETED: StepState.COMPLETED,
    Slot.FAILED: StepState.FAILED,
    Slot.CANCELLED: StepState.CANCELLED,
}
_MOST_NAMED = 12
_MOST_READ = 20
"""Results that are read before it is judged again: they may be too large together."""

STOPPED = "cancelled"
"""Begins the reason of a workflow that ends because it was stopped."""


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
        outcomes: what those left behind that have completed.
        end: set if nothing is left to be done.
    """

    states: tuple[StepState, ...]
    ready: tuple[int, ...] = ()
    unread: tuple[int, ...] = ()
    values: Mapping[int, Any] = {}
    outcomes: Outcomes
    end: End | None = None


class Plan:
    """The steps of a workflow that was started.

    It remembers what it has worked out, so that a judgement repeats only what has changed.

    Args:
        steps: in an order in which none needs a later one; compensations last.
        on_failure: whether other steps begin after one has failed.
        context: what the steps share, at the start.
        refusal: why it cannot be judged.

    Attributes:
        refusal: likewise, or why it is too large; it then fails, and begins no step. Else empty.
    """

    def __init__(
        self,
        steps: Sequence[GraphStep],
        on_failure: OnFailure = "stop",
        context: Mapping[str, Any] | None = None,
        refusal: str = "",
    ) -> None:
        self.graph, self.on_failure, self.context = StepGraph(steps), on_failure, context or {}
        self.steps = self.graph.steps
        self.undoing = {
            step.compensates: position
            for position, step in enumerate(self.steps)
            if step.compensates is not None
        }
        self.refusal = refusal or bounds.refusal(bounds.work(self.steps))
        self.remembered = Remembered()

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
            results: of completed steps, as far as they were read; or :class:`.Unreadable`.
            dispatched: steps whose jobs exist, although ``slots`` does not know of them yet.
            refused: why the jobs of steps cannot be dispatched, by their positions.
            is_cancelled: no step is to begin any more.
        """
        judging = _Judging(self, slots, results, frozenset(dispatched), refused or {})
        return judging.progress(is_cancelled)


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
        self._outcomes = Outcomes(plan.graph, plan.context, results)
        self._values: dict[int, Any] = {}
        self._states: list[StepState] = []
        self._in_state: dict[StepState, int] = dict.fromkeys(StepState, 0)
        self._unread, self._refusal = 0, ""
        self._refused = refused
        self._errors: dict[int, str] = {}

    def progress(self, is_cancelled: bool) -> Progress:
        for position in range(len(self._plan.steps)):
            state = self._state(position)
            self._states.append(state)
            self._in_state[state] |= 1 << position
            if state is StepState.COMPLETED:
                self._outcomes.complete(position)
        failed = self._failed()
        is_undoing = any(position in self._slots for position in self._plan.undoing.values())
        self._refusal = self._plan.refusal or self._plan.remembered.refusal(
            self._outcomes.looked_into()
        )
        if self._refusal:
            self._unread = 0
        halted = is_cancelled or bool(self._refusal) or (failed is not None and self._halts())
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
        if step.compensates is not None or self._plan.refusal:
            return StepState.WAITING
        needs_of_step = self._plan.graph.needs[position]
        needs = {state for state, steps in self._in_state.items() if steps & needs_of_step}
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
        try:
            values = {
                name: value
                for name, path in step.reads.items()
                if (value := self._outcomes.value(position, path)) is not UNSET
            }
            joined = self._plan.remembered.joined(position, values)
        except ConditionError as error:
            self._errors[position] = str(error)
            return StepState.FAILED
        self._outcomes.add(position, joined)
        self._values[position] = joined
        return StepState.COMPLETED

    def _can_read(self, position: int, paths: Iterable[Path]) -> bool:
        """Whether all results were read that the paths may lead to; else they are to be read."""
        unread = self._outcomes.unread(position, paths)
        self._unread |= unread
        return not unread

    def _if_condition_holds(self, position: int, step: GraphStep) -> StepState:
        paths = self._plan.graph.looked_up[position]
        if not self._can_read(position, paths):
            return StepState.WAITING
        values = [self._outcomes.value_or_reason(position, path) for path in paths]

        def judge() -> bool:
            assert step.when is not None
            value_at = dict(zip(paths, values, strict=True))
            return holds(step.when, lambda path: readable(value_at[path]))

        try:
            condition = self._plan.remembered.holds(position, values, judge)
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
            unread=self._to_read(),
            values=self._values,
            outcomes=self._outcomes,
        )

    def _to_read(self) -> tuple[int, ...]:
        """Also what later steps will look into: else each of a row of conditions waits anew."""
        results = self._unread and self._unread | self._outcomes.wanted
        return tuple(islice(positions_of(results), _MOST_READ))

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
        if self._refusal:
            return End(reason=self._refusal)
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
                return self._due(halted=False)
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
        return Progress(
            states=tuple(self._states), end=end, values=self._values, outcomes=self._outcomes
        )
