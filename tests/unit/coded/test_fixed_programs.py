"""Random workflows that an operator fixes while they wait."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.unit.coded import programs
from tests.unit.coded.programs import Program, interpret
from tests.unit.coded.test_random_programs import _outcome, _steps
from tests.unit.coded.world import World

from penstock.events.workflow import (
    WorkflowBlocked,
    WorkflowFixed,
)
from penstock.jobs.lifecycle import State
from penstock.jobs.workflows.coded import memo


class FixedWorld(World):
    """One in which the workflow is blocked, and fixed, after a number of advances."""

    def __init__(self, program: Program, after: int, **fix: Any) -> None:
        super().__init__(interpret, {"program": program})
        self._fix_after, self._fix, self.was_fixed = after, fix, False

    def _wait(self) -> bool:
        record = self.record
        recorded = record.workflow or memo.EMPTY
        is_due = record.state is State.SUSPENDED and recorded.advances == self._fix_after
        if is_due and not self.was_fixed:
            self.was_fixed = True
            about = {"job_id": "wf", "queue": "workflows"}
            self._append(WorkflowBlocked(**about, reason="other code", due_at=self.clock))
            self._append(WorkflowFixed(**about, **self._fix))
            return True
        return super()._wait()


@settings(max_examples=100, deadline=None)
@given(programs.programs, st.integers(1, 4))
def test_what_is_accepted_without_a_difference_changes_nothing(
    program: Program, after: int
) -> None:
    assume(programs.is_determined(program))
    undisturbed = World(interpret, {"program": program})
    undisturbed.run()
    world = FixedWorld(program, after, accepts=True)
    world.run()
    assume(world.was_fixed)
    assert _outcome(world) == _outcome(undisturbed)
    assert _steps(world) == _steps(undisturbed)
    assert world.jobs == undisturbed.jobs


@settings(max_examples=100, deadline=None)
@given(programs.programs, st.integers(1, 4), st.data())
def test_numbers_of_forgotten_steps_are_never_used_again(
    program: Program, after: int, data: st.DataObject
) -> None:
    """Whatever is forgotten: the job of an old step must not pass for that of a new one."""
    assume(programs.is_determined(program))
    undisturbed = World(interpret, {"program": program})
    undisturbed.run()
    keys = sorted({step.key for step in _steps(undisturbed)[0]})
    assume(keys)
    forgotten = tuple(data.draw(st.sets(st.sampled_from(keys), min_size=1)))
    world = FixedWorld(program, after, forgotten=forgotten)
    world.run()
    assume(world.was_fixed)
    numbers = [step.n for step in _steps(world)[0]]
    assert len(numbers) == len(set(numbers))
