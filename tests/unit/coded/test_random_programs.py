"""Random workflows end as a small model says, wherever the process crashes."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.unit.coded import programs
from tests.unit.coded.programs import Catch, Failed, Program, Sequence, expected, interpret
from tests.unit.coded.world import START, World

from penstock.events.workflow import (
    StepRecorded,
    StepsScheduled,
    WorkflowAdvanced,
)
from penstock.events.workflow_memo import Resolution
from penstock.jobs.lifecycle import State
from penstock.jobs.workflows.coded.running import unrecorded
from penstock.jobs.workflows.coded.running.unrecorded import MAX_PART_BYTES

_RECORDINGS = (WorkflowAdvanced, StepsScheduled)


def _ran(program: Program, crash_at: int = 0, after: bool = False) -> World:
    world = World(interpret, {"program": program}, crash_at=crash_at, after=after)
    record = world.run() if crash_at != 1 else None
    assert record is None or record.state is State.COMPLETED
    return world


def _outcome(world: World) -> tuple[float, Any]:
    ended = round((world.clock - START) / timedelta(seconds=1), 3)
    return ended, world.outcome.get("value", "failed")


def _model(program: Program) -> tuple[float, Any]:
    try:
        at, value = expected(program, 0.0)
    except Failed as failed:
        at, value = failed.at, "failed"
    return round(at, 3), value


@settings(max_examples=300, deadline=None)
@given(programs.programs)
def test_a_random_program_ends_as_the_model_says(program: Program) -> None:
    assume(programs.is_determined(program))
    world = _ran(program)
    assert _outcome(world) == _model(program)


@pytest.mark.parametrize("part_bytes", [MAX_PART_BYTES, 250])
@settings(max_examples=60, deadline=None)
@given(programs.programs)
def test_a_crash_at_any_append_changes_neither_outcome_nor_steps(
    part_bytes: int, program: Program
) -> None:
    """Also where an event holds one end or step, so that most is recorded in parts."""
    assume(programs.is_determined(program))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(unrecorded, "MAX_PART_BYTES", part_bytes)
        _crash_everywhere(program)


def _crash_everywhere(program: Program) -> None:
    undisturbed = _ran(program)
    for crash_at in range(2, undisturbed.appends + 1):
        for after in (False, True):
            world = _ran(program, crash_at, after)
            assert _outcome(world) == _outcome(undisturbed)
            assert world.jobs == undisturbed.jobs
            assert _steps(world) == _steps(undisturbed)


def _steps(world: World) -> list[Any]:
    """All that its history says of steps; not where one attempt ended and another began."""
    recordings = [event for _, event in world.log if isinstance(event, _RECORDINGS)]
    scheduled = [step for event in recordings for step in event.scheduled]
    return [scheduled, [event.inline for event in world.events(StepRecorded)]]


@pytest.mark.parametrize("part_bytes", [MAX_PART_BYTES, 250])
@settings(max_examples=80, deadline=None)
@given(programs.undone_programs)
def test_what_completed_is_undone_newest_first_whichever_process_crashes(
    part_bytes: int, program: Program
) -> None:
    assume(_has_distinct_values(program))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(unrecorded, "MAX_PART_BYTES", part_bytes)
        undisturbed = _ran(program)
        if undisturbed.outcome.get("value") == "undone":
            assert _undone(undisturbed) == _to_undo(undisturbed)
        _crash_everywhere(program)


def _has_distinct_values(program: Program) -> bool:
    values = re.findall(r"value=(\d+)", repr(program))
    return len(values) == len(set(values))


def _to_undo(world: World) -> list[int]:
    """Values of the steps that completed before their world began to undo, newest first."""
    order = [
        end for _, event in world.log if isinstance(event, _RECORDINGS) for end in event.consumed
    ]
    values = [_value(end) for end in order if end.outcome == "completed"]
    return [value for value in reversed(values) if value > 0]


def _undone(world: World) -> list[int]:
    calls = [
        msgspec.msgpack.decode(step.payload)
        for _, event in world.log
        if isinstance(event, _RECORDINGS)
        for step in event.scheduled
        if step.kind == "job"
    ]
    return [-value for _, value, _ in calls if value < 0]


def _value(end: Resolution) -> int:
    return int(msgspec.msgpack.decode(end.value))


@settings(max_examples=60, deadline=None)
@given(programs.undone_programs, st.integers(1, 20_000).map(lambda millis: millis / 1000))
def test_a_cancelled_workflow_undoes_what_completed_whichever_process_crashes(
    program: Program, cancel_after: float
) -> None:
    assume(_has_distinct_values(program))
    undisturbed = _cancelled(program, cancel_after)
    if undisturbed.record.state is State.CANCELLED:
        assert _undone(undisturbed) == _to_undo(undisturbed)
    for crash_at in range(2, undisturbed.appends + 1):
        for after in (False, True):
            world = _cancelled(program, cancel_after, crash_at, after)
            assert world.record.state is undisturbed.record.state
            assert world.clock == undisturbed.clock
            assert _undone(world) == _undone(undisturbed)


def _cancelled(program: Program, after: float, crash_at: int = 0, later: bool = False) -> World:
    arguments = {"program": program}
    world = World(programs.cleans_up, arguments, crash_at=crash_at, after=later, cancel_after=after)
    world.run()
    return world


@settings(max_examples=40, deadline=None)
@given(st.lists(programs.programs, min_size=2, max_size=3).map(tuple))
def test_each_generation_ends_as_the_model_says_whichever_process_crashes(
    parts: tuple[Program, ...],
) -> None:
    whole = Sequence(tuple(Catch(part) for part in parts))
    assume(programs.is_determined(whole))
    undisturbed = _continued(parts)
    ended_at, values = _model(whole)
    assert _outcome(undisturbed) == (ended_at, values[-1])
    for crash_at in range(2, undisturbed.appends + 1):
        for after in (False, True):
            world = _continued(parts, crash_at, after)
            assert _outcome(world) == _outcome(undisturbed)
            assert world.jobs == undisturbed.jobs


def _continued(parts: tuple[Program, ...], crash_at: int = 0, after: bool = False) -> World:
    world = World(programs.generations, {"parts": parts}, crash_at=crash_at, after=after)
    world.run()
    return world


@settings(max_examples=100, deadline=None)
@given(programs.programs)
def test_a_recorded_inline_step_does_not_run_again(program: Program) -> None:
    programs.inline_runs.clear()
    world = _ran(program)
    recorded = world.events(StepRecorded)
    assert len(programs.inline_runs) == len(recorded)
