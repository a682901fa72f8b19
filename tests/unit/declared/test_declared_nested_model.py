"""A random workflow comes to the same as a step of another one as by itself."""

from __future__ import annotations

from itertools import cycle
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.declared.test_declared_model import MOST, OUTCOMES, Model, definitions
from tests.unit.declared.workflow_run import WorkflowRun

from penstock.events.condition import Condition
from penstock.jobs.batches.slots import Slot
from penstock.jobs.workflows.declared import nesting
from penstock.jobs.workflows.declared.definition import DeclaredStep, Definition
from penstock.jobs.workflows.declared.validation import checked

LEVELS = st.integers(1, 3)


def within(inner: Definition, levels: int, when: Condition | None = None) -> Definition:
    """The workflow as the only step of one that is the only step of one …; of the last, by when."""
    others, name = {inner.name: inner}, inner.name
    for level in range(levels):
        is_last = level == levels - 1
        step = DeclaredStep(name=f"p{level}", workflow=name, when=when if is_last else None)
        name = f"outer{level}"
        others[name] = checked(Definition(name=name, steps=(step,), context={"k": None}))
    return nesting.spelled_out(others[name], nesting.among(others))


@given(
    definitions(),
    LEVELS,
    st.lists(OUTCOMES, min_size=MOST, max_size=MOST),
    st.lists(st.integers(0, 3), min_size=MOST, max_size=MOST),
    st.randoms(use_true_random=False),
)
def test_nested_it_ends_as_by_itself(
    definition: Definition, levels: int, ends: list[Slot], numbers: list[int], random: Any
) -> None:
    jobs = [name for name in WorkflowRun(definition).names if not name.startswith("undo ")]
    outcomes = dict(zip(jobs, cycle(ends), strict=False))
    results = dict(zip(jobs, cycle(numbers), strict=False))
    model, run = Model(definition, outcomes, results), WorkflowRun(within(definition, levels))
    prefix = "/".join(f"p{level}" for level in reversed(range(levels)))
    while True:
        run.dispatch()
        running = [run.names[at] for at, slot in run.slots.items() if slot is Slot.PENDING]
        if not running:
            break
        name = random.choice(running)
        inner = name.removeprefix(f"{prefix}/")
        outcome = outcomes.get(inner, Slot.COMPLETED)
        if run.planned[run.names.index(name)].step.wait and outcome is Slot.CANCELLED:
            outcome = Slot.FAILED
        run.job_ends(name, outcome, results.get(inner))
    states = run.states
    assert {name: states[f"{prefix}/{name}"].value for name in model.ends} == model.ends
    assert run.end is not None and bool(run.end.reason) is model.fails
    whole = "blocked" if model.fails else "completed"
    assert {states[f"p{levels - 1}"].value, states[prefix].value} == {whole}


@given(definitions(), LEVELS)
def test_nothing_of_it_runs_where_it_is_skipped(definition: Definition, levels: int) -> None:
    run = WorkflowRun(within(definition, levels, Condition(exists=("context", "k"))))
    assert run.dispatch() == []
    steps = {name: state.value for name, state in run.states.items() if "undo " not in name}
    assert set(steps.values()) == {"skipped"}
    assert run.end is not None and run.end.reason == ""
