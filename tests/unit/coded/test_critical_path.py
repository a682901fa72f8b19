"""The critical path of random workflows: what their length came from, without a gap."""

from __future__ import annotations

from datetime import datetime

from hypothesis import assume, given, settings
from msgspec.structs import replace
from tests.unit.coded import programs
from tests.unit.coded.programs import (
    Catch,
    Gather,
    Inline,
    Map,
    Program,
    Race,
    Run,
    Sequence,
    Signal,
    Sleep,
    interpret,
)
from tests.unit.coded.world import START, World

from penstock.jobs.job_view import JobView
from penstock.jobs.payloads.encryption import KeyRing
from penstock.jobs.workflows.coded import memo
from penstock.jobs.workflows.step_times import with_causes, with_exact_ends, with_last_ends
from penstock.jobs.workflows.step_view import StepView, recorded_steps
from penstock.jobs.workflows.workflow_view import WorkflowView, workflow_view
from penstock.views.workflow_board import critical_path


def ended_view(world: World) -> WorkflowView:
    """An ended workflow as a client reads it: with the ends of its jobs and batches."""
    record = replace(world.record, finished_at=world.clock)
    recorded = record.workflow or memo.EMPTY
    steps = [_as_read(world, step) for step in recorded_steps("wf", recorded)]
    steps = with_last_ends(steps, recorded, world.clock, [])
    steps = with_causes(list(with_exact_ends(steps, recorded, {})), recorded)
    view = workflow_view(JobView(record=record, events=(), ring=KeyRing()))
    return replace(view, steps=tuple(steps))


def _as_read(world: World, step: StepView) -> StepView:
    end = world.jobs.get(step.key)
    if end is None or end.at > world.clock:
        return step
    outcome = end.resolution.outcome if step.outcome == "waiting" else step.outcome
    return replace(step, outcome=outcome, ended_at=end.at)


def gaps(view: WorkflowView, begin: datetime, end: datetime) -> list[tuple[str, datetime]]:
    """Places of the critical path at which a step does not begin with the end of the one before."""
    by_key = {step.key: step for step in view.steps}
    now, places = begin, []
    for key in critical_path(view):
        step = by_key[key]
        if step.since != now:
            places.append((key, step.since))
        assert step.ended_at is not None
        now = step.ended_at
    return places if now == end else [*places, ("end", now)]


@settings(max_examples=300, deadline=None)
@given(programs.programs)
def test_the_critical_path_reaches_from_begin_to_end_without_a_gap(program: Program) -> None:
    assume(programs.is_determined(program))
    world = World(interpret, {"program": program})
    world.run()
    view = ended_view(world)
    assert gaps(view, START, world.clock) == []
    outcomes = {step.key: step.outcome for step in view.steps}
    assert not any(outcomes[key] in ("given-up", "waiting") for key in critical_path(view))


def path_of(program: Program) -> tuple[str, ...]:
    world = World(interpret, {"program": program})
    world.run()
    return critical_path(ended_view(world))


def test_the_winner_of_the_last_race_is_on_the_path_and_its_loser_is_not() -> None:
    assert path_of(Race((Run(2.0, 1), Run(1.0, 2)))) == ("race/interpret#2/work",)
    assert path_of(Race((Sleep(1.0), Signal(9.0)))) == ("race/interpret/sleep",)


def test_the_last_step_is_on_the_path_also_where_its_end_is_recorded_nowhere() -> None:
    assert path_of(Map(((1.0, False),), 0)) == ("work",)
    assert path_of(Sequence((Sleep(1.0), Sleep(2.0)))) == ("sleep", "sleep#2")
    assert path_of(Catch(Signal(1.0))) == ("go",)


def test_a_join_follows_what_ended_last_whatever_was_noted_last() -> None:
    joined = Gather((Run(3.0, 1), Sleep(1.0)))
    assert path_of(Sequence((joined, Inline(1), Sleep(1.0)))) == (
        "gather/interpret/work",
        "inline",
        "sleep",
    )
