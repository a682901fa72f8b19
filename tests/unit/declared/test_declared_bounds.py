"""Whatever a definition says, and whatever its steps result in: judging it takes bounded work."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.declared.operations import operations
from tests.unit.declared.test_declared_model import definitions
from tests.unit.declared.test_declared_progress import steps
from tests.unit.declared.workflow_run import WorkflowRun

from penstock.events.condition import Condition, Path, Reference
from penstock.events.graph import MAX_STEPS, GraphFailed, GraphStarted, GraphStep, Join, Rule
from penstock.jobs.batches.slots import Slot
from penstock.jobs.workflows import graph_record
from penstock.jobs.workflows.declared import bounds, nesting, reading
from penstock.jobs.workflows.declared.definition import Definition
from penstock.jobs.workflows.declared.outcomes import Unreadable, read
from penstock.jobs.workflows.declared.planning import plan
from penstock.jobs.workflows.declared.progress import Plan, Progress
from penstock.jobs.workflows.declared.remembered import MAX_JOINS_DEEP, MAX_VALUE_BYTES
from penstock.jobs.workflows.declared.step_state import StepState
from penstock.jobs.workflows.declared.validation import BadDefinition
from penstock.jobs.workflows.declared.values import MAX_COMPARED
from penstock.orchestrator.core.graph import Graph, GraphSnapshot
from penstock.orchestrator.core.instructions import Append

NOW = datetime(2026, 11, 23, tzinfo=UTC)
MOST_OPERATIONS = 80
"""Of one judgement, for each step and each part of its conditions, path that it reads and key that
it sets."""


# --- values of joins ------------------------------------------------------------------------------
def doubling(levels: int, function: str = "f") -> Definition:
    """Two rows of joins, each of which takes the one before twice; then both are compared."""
    joins = [
        {
            "name": f"{row}{level}",
            "takes": dict.fromkeys(
                "ab", f"results.{row}{level - 1}" if level else "context.values"
            ),
            "needs": [f"{row}{level - 1}"] if level else [],
        }
        for row in "jk"
        for level in range(levels)
    ]
    last = f"j{levels - 1}", f"k{levels - 1}"
    when = f"results.{last[0]} == results.{last[1]}"
    end = {"name": "end", "function": function, "needs": list(last), "when": when}
    context = {"values": [1, 2, 3]}
    return reading.from_values({"name": "w", "context": context, "steps": [*joins, end]})


def started(definition: Definition) -> GraphStarted:
    return GraphStarted(
        graph_id="g",
        steps=tuple(planned.step for planned in plan(definition)),
        on_failure=definition.on_failure,
        context=msgspec.msgpack.encode(definition.context),
        at=NOW,
    )


def failed(graph: Graph) -> str:
    """Why a graph ends, at once."""
    instruction = graph.decide(NOW)
    assert isinstance(instruction, Append) and isinstance(instruction.event, GraphFailed)
    return instruction.event.reason


def test_joins_that_double_a_value_fail_where_it_is_too_large() -> None:
    record = graph_record.evolve(None, started(doubling(60)), 1)
    reason = failed(Graph(record, "test"))
    assert reason.startswith("step 'j16' failed: what it joins has 2,")
    assert f"bytes, expected at most {MAX_VALUE_BYTES:,}; can no longer run: j16 → j17" in reason


def test_an_instance_that_was_stored_before_fails_after_a_restart() -> None:
    snapshot = Graph(graph_record.evolve(None, started(doubling(60)), 1), "test").snapshot()
    stored = msgspec.msgpack.encode(snapshot)
    restored = Graph.restored(msgspec.msgpack.decode(stored, type=GraphSnapshot), "test")
    assert "step 'j16' failed: what it joins has" in failed(restored)


def test_a_value_that_doubles_by_way_of_the_context_is_bounded_too() -> None:
    joins = {
        f"j{n}": {
            "join": True,
            "needs": [f"j{n - 1}"] if n else [],
            "takes": {"a": "context.value", "b": "context.value.a"},
            "sets": {"value": "result"},
        }
        for n in range(60)
    }
    run = WorkflowRun(steps({"value": {"a": "x" * 1_000}}, **joins))
    assert run.end is not None and "what it joins has" in run.end.reason


def test_the_size_of_a_join_is_that_of_its_encoded_form() -> None:
    text, rows = "x" * (MAX_VALUE_BYTES // 2), [None] * (MAX_VALUE_BYTES // 2 - 40)
    takes = {"text": "results.a", "rows": "results.b.rows", "none": "results.a.absent"}
    both = {"join": True, "needs": ["a", "b"], "takes": takes}
    run = WorkflowRun(steps(a=[], b=[], both=both))
    run.run({"a": text, "b": {"rows": rows}})
    assert run.states["both"] is StepState.COMPLETED
    joined = run.progress().values[run.names.index("both")]
    assert MAX_VALUE_BYTES - 60 < len(msgspec.msgpack.encode(joined)) < MAX_VALUE_BYTES
    larger = WorkflowRun(steps(a=[], b=[], both=both))
    larger.run({"a": text, "b": {"rows": [*rows, *[None] * 40]}})
    assert larger.states["both"] is StepState.FAILED


def test_joins_are_nested_to_a_bounded_depth() -> None:
    joins = {
        f"j{n}": {"join": True, "needs": [f"j{n - 1}"], "takes": {"a": f"results.j{n - 1}"}}
        for n in range(1, MAX_JOINS_DEEP + 1)
    }
    run = WorkflowRun(steps({"n": 1}, j0={"join": True, "takes": {"a": "context.n"}}, **joins))
    assert run.end is not None
    last = f"step 'j{MAX_JOINS_DEEP}' failed: it joins results of joins"
    assert run.end.reason.startswith(last)


# --- comparisons ----------------------------------------------------------------------------------
def compared(when: str, a: Any, b: Any) -> WorkflowRun:
    run = WorkflowRun(steps(a=[], b=[], c={"needs": ["a", "b"], "when": when}))
    run.run({"a": a, "b": b})
    return run


@pytest.mark.parametrize("rows", [[0] * MAX_COMPARED, {str(n): n for n in range(MAX_COMPARED)}])
def test_lists_and_objects_of_bounded_size_are_compared(rows: Any) -> None:
    assert compared("results.a == results.b", rows, rows).states["c"] is StepState.COMPLETED
    assert compared("results.a == results.b", [rows] * 9, [0]).states["c"] is StepState.SKIPPED


@pytest.mark.parametrize(
    ("when", "a", "b"),
    [
        ("results.a == results.b", [0] * 2_001, [0] * 2_001),
        ("results.a != results.b", [[0] * 999] * 3, [[0] * 999] * 3),
        ("results.a == results.b", {"x": [[0] * 2_000]}, {"x": [[0] * 2_000]}),
        ("results.a in results.b", 1, [0] * 2_001),
        ("results.a in results.b", [0], [[0] * 1_000] * 3),
        ("results.a == results.b", ["x" * 3_000_000], ["x" * 3_000_000]),
        (" or ".join(["results.a != results.a"] * 3), [0] * 999, 0),
    ],
    ids=range(7),
)
def test_a_condition_that_compares_more_fails_its_step(when: str, a: Any, b: Any) -> None:
    run = compared(when, a, b)
    assert run.end is not None
    assert run.end.reason.startswith(
        "step 'c' failed: its condition: the lists and objects that it compares hold more than "
        "2,000 values"
    )


@pytest.mark.parametrize(
    ("item", "items", "is_item"),
    [
        (1, [2, True], False),
        (True, [1, 2], False),
        (True, [0, True], True),
        (1, [True, 1.0], True),
        ([1], [[1], [2]], True),
        (None, [None], True),
        ("a", ["ab"], False),
    ],
)
def test_what_is_an_item_of_a_list(item: Any, items: list[Any], is_item: bool) -> None:
    state = compared("results.a in results.b", item, items).states["c"]
    assert (state is StepState.COMPLETED) is is_item


def test_what_is_nested_deeply_is_not_compared() -> None:
    deep: Any = 0
    for _ in range(900):
        deep = [deep]
    run = compared("results.a == results.b", deep, deep)
    assert run.end is not None and "nested more than 50 deep" in run.end.reason


# --- how much a definition may be -----------------------------------------------------------------
@given(definitions())
def test_the_work_of_a_definition_is_known_before_it_is_planned(definition: Definition) -> None:
    planned = [one.step for one in plan(definition)]
    assert bounds.declared_work(definition.steps) == bounds.work(planned)


def branching(cases: int, parts: int) -> dict[str, Any]:
    when = {"any": [{"eq": [{"ref": "context.k"}, n]} for n in range(parts)]}
    call = {"function": "f"}
    branch = {"on": "context.k", "cases": {str(n): call for n in range(cases)}}
    step = {"name": "a", "branch": branch, "when": when}
    return {"name": "w", "context": {"k": 0}, "steps": [step]}


def test_a_definition_of_too_much_work_is_refused() -> None:
    reading.from_values(branching(200, 90))
    with pytest.raises(BadDefinition, match=r"its steps have 22,561 parts.*at most 20,000"):
        reading.from_values(branching(240, 90))


def test_so_is_one_with_its_inner_workflows() -> None:
    inner = reading.from_values({**branching(90, 90), "name": "inner"})
    steps = [{"name": f"s{n}", "workflow": "inner"} for n in range(3)]
    outer = reading.from_values({"name": "w", "steps": steps})
    with pytest.raises(BadDefinition, match=r"w.*parts of conditions.*at most 20,000"):
        nesting.spelled_out(outer, nesting.among({"inner": inner}))


def condition(parts: int) -> Condition:
    return Condition(any_of=(Condition(eq=(Reference(("context", "k")), 1)),) * parts)


def test_a_stored_instance_of_too_much_work_fails_with_the_reason() -> None:
    undo = GraphStep(name="undo a", payload=b"", compensates=0)
    heavy = [
        GraphStep(name=f"s{n}", payload=b"", needs=(0,), when=condition(99)) for n in range(300)
    ]
    all_steps = (GraphStep(name="a", payload=b""), *heavy, undo)
    event = GraphStarted(graph_id="g", steps=all_steps, at=NOW)
    graph = Graph(graph_record.evolve(None, event, 1), "test")
    graph.see_job(0, "JobDispatched", 2)
    assert graph.decide(NOW) is None, "a step runs"
    graph.see_job(0, "JobCompleted", 3)
    undone = len(all_steps) - 1
    assert graph.progress().ready == (undone,)
    graph.see_job(undone, "JobDispatched", 4)
    graph.see_job(undone, "JobCompleted", 5)
    assert "its steps have 30,302 parts of conditions" in failed(graph)


def test_misspelt_names_of_many_steps_are_explained_in_bounded_work() -> None:
    long = "ab" * 40
    steps = [
        {"name": f"step-{n:04d}-{long}", "function": "f", "needs": [f"stop-{n:04d}-{long}"]}
        for n in range(900)
    ]
    messages: list[str] = []

    def define() -> None:
        with pytest.raises(BadDefinition) as raised:
            reading.from_values({"name": "w", "steps": steps})
        messages.append(str(raised.value))

    assert operations(define) < 10_000_000
    assert f"needs 'stop-0000-{long}', which is no step; did you mean 'step-" in messages[0]


# --- one judgement --------------------------------------------------------------------------------
def judged(some: Plan, results: dict[int, Any]) -> tuple[Progress, int]:
    """How far a workflow is whose jobs have all completed, and in how many operations."""
    jobs = {at: Slot.COMPLETED for at, step in enumerate(some.steps) if step.payload}
    answers: list[Progress] = []
    count = operations(lambda: answers.append(some.progress(jobs, results)))
    return answers[0], count


KEY: Path = ("context", "k")


def setters(number: int, judging: int, parts: int) -> list[GraphStep]:
    """Joins that set one key, one after another, and steps whose conditions read it."""
    joins = [
        GraphStep(
            name=f"s{n}",
            payload=b"",
            needs=(n - 1,) if n else (),
            join=Join.VALUES,
            reads={"a": ("context", "absent")},
            sets={"k": ("a",)},
        )
        for n in range(number)
    ]
    conditions = [
        GraphStep(name=f"j{n}", payload=b"", needs=(number - 1,), when=condition(parts))
        for n in range(judging)
    ]
    return [*joins, *conditions]


def test_a_look_up_takes_no_longer_where_many_steps_set_the_key() -> None:
    few, many = (Plan(setters(number, 52, 90)) for number in (10, 840))
    _, first = judged(few, {})
    _, second = judged(many, {})
    assert second < first + MOST_OPERATIONS * 3 * 830


def test_a_condition_is_evaluated_again_only_for_other_values() -> None:
    heavy = Plan([GraphStep(name="a", payload=b"x"), *setters(1, 0, 0), *conditions_on_a(90, 50)])
    rows = [0] * 20
    progress, first = judged(heavy, {0: rows})
    again, second = judged(heavy, {0: rows})
    assert (again.states, again.ready) == (progress.states, progress.ready)
    assert second < first / 2
    other, _ = judged(heavy, {0: [1] * 20})
    assert other.states != progress.states


def conditions_on_a(parts: int, number: int) -> list[GraphStep]:
    a: Path = ("results", 0)
    compared = tuple(
        Condition(within=(Reference(("results", 0, n % 20)), Reference(a))) for n in range(parts)
    )
    zero = Condition(eq=(Reference(("results", 0, 0)), 0))
    when = Condition(all_of=(zero, *compared))
    return [GraphStep(name=f"c{n}", payload=b"", needs=(0,), when=when) for n in range(number)]


@st.composite
def large_workflows(draw: st.DrawFn) -> tuple[list[GraphStep], dict[int, Any]]:
    """As many steps as there may be, in groups that are alike, with as much work."""
    all_steps: list[GraphStep] = []
    results: dict[int, Any] = {}
    left = bounds.MAX_WORK
    small: Any = {"a": 1, "b": [1, 2]}
    values = st.sampled_from([0, "x" * 100_000, small, [small] * 700, {"a": {"a": small}}])
    while len(all_steps) < MAX_STEPS:
        first = len(all_steps)
        group = min(draw(st.sampled_from([1, 40, 300])), MAX_STEPS - first)
        kind = draw(st.sampled_from(["job", "all", "values", "branch"]))
        needs_of = draw(st.sampled_from(["none", "last", "group", "all", "chain"]))
        rule, value = draw(st.sampled_from(list(Rule))), draw(values)
        field = draw(st.sampled_from([(), ("a",), ("b", 0), ("absent",)]))
        parts, reads, sets = (draw(st.sampled_from([0, 1, 30])) for _ in range(3))
        other = draw(st.integers(0, max(0, first - 1)))
        for at in range(first, first + group):
            source: Path = ("results", other, *field) if first else ("context", "k0", *field)
            keys: list[Path] = [("context", f"k{n}", *field) for n in range(30)]
            compare = [Condition(ne=(Reference(source), Reference(key))) for key in keys[:parts]]
            step = GraphStep(
                name=f"s{at}",
                payload=b"x" if kind == "job" else b"",
                needs={
                    "none": (),
                    "last": tuple(range(max(0, first - 1), first)),
                    "group": tuple(range(max(0, first - 40), first)),
                    "all": tuple(range(first)),
                    "chain": tuple(range(max(0, at - 1), at)),
                }[needs_of],
                rule=rule,
                when=Condition(any_of=tuple(compare)) if compare else None,
                reads={f"p{n}": key for n, key in enumerate((source, *keys)) if n < reads},
                sets={f"k{n}": field for n in range(sets)},
                join=None if kind == "job" else Join(kind),
            )
            cost = bounds.work([step])
            if cost > left - (MAX_STEPS - at):
                step = GraphStep(name=f"s{at}", payload=b"x", needs=step.needs)
                cost = 1
            left -= cost
            all_steps.append(step)
            if step.payload:
                results[at] = value
    return all_steps, results


@given(large_workflows())
@settings(max_examples=10, suppress_health_check=[HealthCheck.large_base_example])
def test_the_largest_workflow_is_judged_in_a_bounded_number_of_operations(
    workflow: tuple[list[GraphStep], dict[int, Any]],
) -> None:
    all_steps, results = workflow
    largest = Plan(all_steps, "continue", {"k0": {"a": 1}})
    assert not largest.refusal
    work, compared = bounds.work(all_steps), 2 * MAX_COMPARED * MAX_STEPS
    needs = sum(len(step.needs) for step in all_steps)
    progress, count = judged(largest, results)
    assert count <= MOST_OPERATIONS * work + 6 * needs + compared  # needs: once a workflow
    again, count = judged(largest, results)
    assert (again.states, again.end) == (progress.states, progress.end)
    assert count <= MOST_OPERATIONS * work


# --- memory ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        (b"\xdd" + (100_001).to_bytes(4, "big") + b"\x90" * 100_001, "it holds more than 100,000"),
        (b"\xc6" + (1_000_000).to_bytes(4, "big") + b"x" * 1_000_000, "it has 1,000,005 bytes"),
        (b"\x91" * 90_000 + b"\xc0", "recursion"),
        (b"\xc1", "invalid opcode"),
    ],
    ids=["many values", "many bytes", "deep", "no MessagePack"],
)
def test_a_result_that_would_take_much_memory_is_not_looked_into(
    encoded: bytes, reason: str
) -> None:
    value = read(encoded)
    assert isinstance(value, Unreadable) and reason in value.reason


def test_results_that_take_too_much_memory_together_fail_the_workflow() -> None:
    names = [f"a{n}" for n in range(12)]
    either = " or ".join(f"results.{name} == 1" for name in names)
    run = WorkflowRun(
        steps(**{name: [] for name in names}, b={"needs": names, "when": either}, c=["b"])
    )
    run.run({name: [[]] * 99_000 for name in names})
    assert run.end is not None
    assert "look into take 77,220,060 bytes in memory, expected at most 64,000" in run.end.reason
    assert run.states["c"] is StepState.WAITING


def test_results_are_read_a_few_at_a_time() -> None:
    names = [f"a{n}" for n in range(50)]
    each = {"all": [{"eq": [{"ref": f"results.{name}"}, 1]} for name in names]}
    run = WorkflowRun(steps(**{name: [] for name in names}, b={"needs": names, "when": each}))
    run.dispatch()
    for name in names:
        run.job_ends(name, result=1)
    assert len(run.plan.progress(run.slots, {}).unread) == 20
    assert run.due == ["b"]


@pytest.mark.parametrize(
    ("context", "reason"),
    [
        (b"\x81\xa1k\xdd" + (10**5).to_bytes(4, "big") + b"\x90" * 10**5, "more than 100,000"),
        (b"\x93\x01\x02\x03", "it is no object"),
        (b"\xc1", "invalid opcode"),
        (b"\x81\xa1k" + b"\x91" * 2_000 + b"\xc0", "recursion"),
    ],
    ids=["many values", "no object", "no MessagePack", "deep"],
)
def test_an_instance_whose_context_cannot_be_read_fails_with_the_reason(
    context: bytes, reason: str
) -> None:
    event = msgspec.structs.replace(started(doubling(2)), context=context)
    message = failed(Graph(graph_record.evolve(None, event, 1), "test"))
    assert message.startswith("its context cannot be read: ") and reason in message
