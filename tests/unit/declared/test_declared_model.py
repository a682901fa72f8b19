"""Random workflows: beside a model that only counts, and beside the graphs of today."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from itertools import cycle
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.declared.conversion import of_graph
from tests.unit.declared.workflow_run import WorkflowRun

from penstock.events.graph import GraphCompleted, GraphFailed, GraphStarted, GraphStep, Rule
from penstock.jobs.batches.slots import Slot
from penstock.jobs.payloads import payload
from penstock.jobs.workflows import graph_order, graph_record
from penstock.jobs.workflows.declared.definition import (
    Branch,
    DeclaredCall,
    DeclaredStep,
    Definition,
    SignalWait,
)
from penstock.jobs.workflows.declared.text import parse_condition
from penstock.jobs.workflows.declared.validation import checked
from penstock.orchestrator.core.graph import Graph
from penstock.orchestrator.core.instructions import Append, StartSteps

NOW = datetime(2026, 11, 23, tzinfo=UTC)
ENDS = {Slot.COMPLETED: "JobCompleted", Slot.FAILED: "JobDead", Slot.CANCELLED: "JobCancelled"}
OUTCOMES = st.sampled_from([Slot.COMPLETED, Slot.COMPLETED, Slot.FAILED, Slot.CANCELLED])
MOST = 7


CALL = DeclaredCall(function="f")
BRANCHES = st.builds(
    lambda ways, otherwise: Branch(
        on=("context", "way"), cases=dict.fromkeys(ways, CALL), otherwise=otherwise
    ),
    st.lists(st.sampled_from("abc"), min_size=1, unique=True),
    st.sampled_from([None, CALL]),
)


@st.composite
def definitions(draw: st.DrawFn) -> Definition:
    steps: list[DeclaredStep] = []
    for number in range(draw(st.integers(1, MOST))):
        names = [step.name for step in steps]
        needs = tuple(draw(st.lists(st.sampled_from(names), unique=True))) if names else ()
        rules = list(Rule) if needs else [Rule.NONE_FAILED, Rule.ALL_SUCCESS, Rule.ALL_DONE]
        conditions = [None, "context.n < 2", "context.n >= 2"]
        conditions += [f"results.{need} < 2" for need in needs]
        when = draw(st.sampled_from(conditions))
        is_join = bool(needs) and draw(st.integers(0, 4)) == 0
        is_wait = not is_join and draw(st.integers(0, 4)) == 0
        is_branch = not is_join and not is_wait and draw(st.integers(0, 4)) == 0
        undo = None if is_join or draw(st.booleans()) else DeclaredCall(function="undo")
        steps.append(
            DeclaredStep(
                name=f"s{number}",
                function="" if is_join or is_wait or is_branch else "f",
                branch=draw(BRANCHES) if is_branch else None,
                wait=SignalWait(timeout_seconds=60.0) if is_wait else None,
                needs=needs,
                rule=draw(st.sampled_from(rules)),
                when=parse_condition(when) if when else None,
                may_fail=draw(st.integers(0, 3)) == 0,
                compensate=undo,
                sets={} if is_join or draw(st.booleans()) else {"n": ()},
            )
        )
    context = {"n": draw(st.integers(0, 3)), "way": draw(st.sampled_from("abc"))}
    return checked(Definition(name="w", steps=tuple(steps), context=context))


class Model:
    """How each step ends, worked out from the definition and the outcome of each job by counting.

    Steps are looked at in the order in which they were declared, in which none needs a later one.
    """

    def __init__(
        self, definition: Definition, outcomes: dict[str, Slot], results: dict[str, int]
    ) -> None:
        self.outcomes, self.results, self.ends = outcomes, results, dict[str, str]()
        self.steps = {step.name: step for step in definition.steps}
        self.way = definition.context["way"]
        for step in definition.steps:
            self.ends[step.name] = self._end(step, definition.context["n"])

    def _end(self, step: DeclaredStep, n: int) -> str:
        count = Counter(self.ends[need] for need in step.needs)
        bad = count["failed"] + count["cancelled"] + count["blocked"]
        good = count["completed"]
        may_run = {
            Rule.ALL_DONE: True,
            Rule.NONE_FAILED: bad == 0,
            Rule.ALL_SUCCESS: good == len(step.needs),
            Rule.ANY_FAILED: bad > 0,
            Rule.ANY_SUCCESS: good > 0,
        }[step.rule]
        if not may_run:
            # A step is blocked by a failure, and skipped by what was skipped alone.
            return "blocked" if bad and step.rule is not Rule.ANY_FAILED else "skipped"
        if step.when is not None and not self._holds(step, n):
            return "skipped"
        if step.awaits and self.outcomes[step.name] is Slot.CANCELLED:
            return "failed"  # a wait has no job that is cancelled
        if step.branch is not None:
            if (case := self._job(step)) is None:
                return "skipped"
            return "completed" if self.outcomes[case] is Slot.COMPLETED else "blocked"
        is_join = not step.function and not step.awaits
        return "completed" if is_join else self.outcomes[step.name].name.lower()

    def _job(self, step: DeclaredStep) -> str | None:
        """Name of the job that a step makes, if it runs."""
        if step.branch is None:
            return step.name
        if self.way in step.branch.cases:
            return f"{step.name}/{self.way}"
        return f"{step.name}/otherwise" if step.branch.otherwise else None

    def _holds(self, step: DeclaredStep, n: int) -> bool:
        condition = step.when
        assert condition is not None and condition.comparison is not None
        left = condition.comparison[0]
        assert not isinstance(left, str | int | float | tuple) and left is not None
        root, name = left.ref
        if root == "context":
            earlier, todo = set[str](), list(step.needs)
            while todo:
                earlier.add(need := todo.pop())
                todo += self.steps[need].needs
            for other in ordered(self.steps):
                if other in earlier and self.steps[other].sets and self.ends[other] == "completed":
                    n = self.results[str(self._job(self.steps[other]))]
            return n < 2 if condition.lt else n >= 2
        source = self.steps[str(name)]
        is_join = not source.function and not source.awaits and source.branch is None
        has_result = not is_join and self.ends[source.name] == "completed"
        return has_result and self.results[str(self._job(source))] < 2

    @property
    def fails(self) -> bool:
        return any(
            end in {"failed", "cancelled", "blocked"} and not self.steps[name].may_fail
            for name, end in self.ends.items()
        )


def ordered(steps: dict[str, DeclaredStep]) -> list[str]:
    """By depth, then as declared: the order in which steps of one context set its keys."""
    depth, ends = dict[str, int](), dict[str, int]()
    for name, step in steps.items():
        depth[name] = 1 + max((ends[need] for need in step.needs), default=0)
        ends[name] = depth[name] + (step.branch is not None)  # a join comes after the cases
    return sorted(steps, key=depth.__getitem__)


@given(
    definitions(),
    st.lists(OUTCOMES, min_size=MOST, max_size=MOST),
    st.lists(st.integers(0, 3), min_size=MOST, max_size=MOST),
    st.randoms(use_true_random=False),
)
def test_steps_end_as_the_model_says_in_whatever_order_jobs_end(
    definition: Definition, ends: list[Slot], numbers: list[int], random: Any
) -> None:
    names, run = [step.name for step in definition.steps], WorkflowRun(definition)
    jobs = [name for name in run.names if not name.startswith("undo ")]
    outcomes = dict(zip(jobs, cycle(ends), strict=False))
    results = dict(zip(jobs, cycle(numbers), strict=False))
    model = Model(definition, outcomes, results)
    undone: list[str] = []
    for _ in range(4 * MOST):
        started = run.dispatch()
        undone += [name.removeprefix("undo ") for name in started if name.startswith("undo ")]
        running = [run.names[at] for at, slot in run.slots.items() if slot is Slot.PENDING]
        if not running:
            break
        name = random.choice(running)
        outcome = outcomes.get(name, Slot.COMPLETED)
        if run.planned[run.names.index(name)].step.wait and outcome is Slot.CANCELLED:
            outcome = Slot.FAILED
        run.job_ends(name, outcome, results.get(name))
    end = run.end
    assert end is not None, "nothing runs, nothing is due, and it has not ended"
    assert {name: run.states[name].value for name in names} == model.ends
    assert bool(end.reason) is model.fails
    to_undo = [step.name for step in definition.steps if step.compensate and model.fails]
    assert sorted(undone) == sorted(name for name in to_undo if model.ends[name] == "completed")
    assert undone == sorted(undone, key=run.names.index, reverse=True)


# --- beside the graphs of today -------------------------------------------------------------------
@st.composite
def graphs(draw: st.DrawFn) -> tuple[GraphStep, ...]:
    """Steps in the order in which clients start them."""
    names = [f"{number} f" for number in range(draw(st.integers(1, MOST)))]
    needs = {
        name: draw(st.lists(st.sampled_from(names[:number]), unique=True)) if number else []
        for number, name in enumerate(names)
    }
    order = [name for level in graph_order.levels(needs) for name in level]
    call = payload.Payload(
        id="g", function="f", queue="q", arguments=msgspec.Raw(b"\x80"), dispatched_at=0.0
    )
    encoded = payload.encode(call)
    return tuple(
        GraphStep(name=name, payload=encoded, needs=tuple(map(order.index, needs[name])))
        for name in order
    )


@given(
    graphs(), st.lists(OUTCOMES, min_size=MOST, max_size=MOST), st.randoms(use_true_random=False)
)
def test_a_graph_as_a_definition_is_carried_out_as_graphs_are(
    steps: tuple[GraphStep, ...], ends: list[Slot], random: Any
) -> None:
    started = GraphStarted(graph_id="g", source="test", steps=steps, at=NOW)
    graph = Graph(graph_record.evolve(None, started, 1), "test")
    run, sequence = WorkflowRun(of_graph("g", steps)), 1
    assert run.names == [step.name for step in steps]
    while True:
        instruction, progress = graph.decide(NOW), run.progress()
        due = instruction.indices if isinstance(instruction, StartSteps) else ()
        assert due == progress.ready
        assert isinstance(instruction, Append) is (progress.end is not None)
        if isinstance(instruction, Append):
            _assert_same_end(instruction, run)
            return
        for index in due:
            graph.see_job(index, "JobDispatched", sequence := sequence + 1)
        run.dispatch()
        running = [index for index, slot in run.slots.items() if slot is Slot.PENDING]
        index = random.choice(running)
        graph.see_job(index, ENDS[ends[index]], sequence := sequence + 1)
        run.job_ends(steps[index].name, ends[index])


def _assert_same_end(instruction: Append, run: WorkflowRun) -> None:
    end, event = run.end, instruction.event
    assert end is not None
    if end.step is None:
        assert isinstance(event, GraphCompleted)
        return
    assert isinstance(event, GraphFailed)
    assert event.reason == end.reason
    assert event.step == run.names[end.step]
