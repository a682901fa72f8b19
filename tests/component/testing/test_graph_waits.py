"""Steps that sleep, wait for a signal or for an approval; pauses and time limits of a whole."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from penstock.config import Settings
from penstock.config.load import check
from penstock.jobs import JobRefused, Outcome, SignalWait, Step, awaiting, job, registry
from penstock.jobs.workflows.declared import reading
from penstock.jobs.workflows.declared.definition import Definition
from penstock.jobs.workflows.graph_record import GraphRecord, GraphState
from penstock.testing import Bench

RAN: list[str] = []
OUTCOMES: list[Outcome] = []
DAY = timedelta(days=1)


@job(name="waits.work", queue="orders", tries=1)
def work(name: str, value: Any = None) -> Any:
    RAN.append(name if value is None else f"{name}({value})")
    if name.startswith("broken"):
        raise ValueError(name)
    return value


@job(name="waits.ended", queue="orders")
def ended(outcome: Outcome) -> None:
    OUTCOMES.append(outcome)


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    RAN.clear()
    OUTCOMES.clear()
    registry.REGISTRY.update({kind.name: kind for kind in (work, ended)})
    yield
    for kind in (work, ended):
        registry.REGISTRY.pop(kind.name, None)


@pytest.fixture
def penstock_settings() -> Settings:
    return check({"pools": {"orders": {"kind": "group", "queues": ["orders"]}}})


def definition(*steps: dict[str, Any], **fields: Any) -> Definition:
    return reading.from_values({"name": "w", "steps": list(steps), **fields})


def call(name: str, *needs: str, **fields: Any) -> dict[str, Any]:
    arguments = {"name": name}
    return {
        "name": name, "function": "waits.work", "arguments": arguments, "needs": needs, **fields
    }  # fmt: skip


async def now(penstock: Bench, graph: str) -> GraphRecord:
    await penstock.run_pending()
    return await penstock.client.graphs.show(graph)


# --- time -----------------------------------------------------------------------------------------
async def test_a_step_sleeps_from_when_its_turn_comes(penstock: Bench) -> None:
    graph = await penstock.client.graphs.dispatch(
        {
            "a": Step(work(name="a")),
            "pause": Step(sleep=timedelta(hours=1), after=["a"]),
            "b": Step(work(name="b"), after=["pause"]),
        }
    )
    assert (await now(penstock, graph)).state is GraphState.RUNNING
    await penstock.advance(3_590)
    await now(penstock, graph)
    assert RAN == ["a"]
    await penstock.advance(15)
    assert (await now(penstock, graph)).state is GraphState.COMPLETED
    assert RAN == ["a", "b"]


async def test_a_chain_may_begin_with_a_sleep(penstock: Bench) -> None:
    steps = definition({"name": "pause", "sleep_seconds": 60}, call("a", "pause"))
    graph = await penstock.client.definitions.run(steps)
    assert (await now(penstock, graph)).state is GraphState.RUNNING
    assert RAN == []
    await penstock.advance(61)
    assert (await now(penstock, graph)).state is GraphState.COMPLETED


# --- signals --------------------------------------------------------------------------------------
WAITING = [
    call("a"),
    {"name": "paid", "needs": ["a"], "wait": {"signal": "payment"}, "sets": {"by": "result.by"}},
    call("b", "paid", takes={"value": "results.paid.sum"}),
    call("c", "b", takes={"value": "context.by"}, when="context.by == 'card'"),
]


async def test_a_signal_is_the_result_of_the_step_that_waits_for_it(penstock: Bench) -> None:
    graphs = penstock.client.graphs
    graph = await penstock.client.definitions.run(
        definition(*WAITING, context={"by": "invoice"}), {}
    )
    assert (await now(penstock, graph)).state is GraphState.RUNNING
    await penstock.advance(30 * DAY)
    await graphs.signal(graph, "payment", {"sum": 9, "by": "card"}, signal_id="m1")
    assert (await now(penstock, graph)).state is GraphState.COMPLETED
    assert RAN == ["a", "b(9)", "c(card)"]


async def test_a_signal_may_come_before_it_is_waited_for(penstock: Bench) -> None:
    graph = await penstock.client.definitions.run(definition(*WAITING, context={"by": ""}))
    await penstock.client.graphs.signal(graph, "payment", {"sum": 1})
    assert (await now(penstock, graph)).state is GraphState.COMPLETED
    assert RAN == ["a", "b(1)"]


async def test_the_first_signal_counts_and_one_id_is_sent_once(penstock: Bench) -> None:
    graphs = penstock.client.graphs
    graph = await penstock.client.definitions.run(definition(*WAITING, context={"by": ""}))
    await graphs.signal(graph, "payment", {"sum": 1}, signal_id="m1")
    await graphs.signal(graph, "payment", {"sum": 2}, signal_id="m1")
    with pytest.raises(JobRefused, match="was sent signal 'payment' already"):
        await graphs.signal(graph, "payment", {"sum": 3})
    await now(penstock, graph)
    assert RAN == ["a", "b(1)"]
    await graphs.signal(graph, "payment", {"sum": 4}, signal_id="m1")
    with pytest.raises(JobRefused, match="takes no signal: it is completed"):
        await graphs.signal(graph, "payment", {"sum": 5})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("paymant", 1, "does not wait for signal 'paymant'; it takes payment; did you mean"),
        ("", 1, "does not wait for signal ''"),
        ("payment", "x" * 64_001, "at most 64,000 bytes"),
        ("payment", object(), "cannot be sent"),
    ],
)
async def test_signals_that_are_refused(
    penstock: Bench, name: str, value: Any, message: str
) -> None:
    graph = await penstock.client.definitions.run(definition(*WAITING, context={"by": ""}))
    with pytest.raises(JobRefused, match=message):
        await penstock.client.graphs.signal(graph, name, value)


async def test_all_signals_of_a_graph_are_bounded_together(penstock: Bench) -> None:
    steps = [{"name": f"s{number}", "wait": {}} for number in range(5)]
    graph = await penstock.client.definitions.run(definition(*steps))
    for number in range(4):
        await penstock.client.graphs.signal(graph, f"s{number}", "x" * 63_990)
    with pytest.raises(JobRefused, match="exceed 256,000 bytes"):
        await penstock.client.graphs.signal(graph, "s4", "x" * 63_990)


async def test_without_a_signal_in_time_a_step_has_its_default(penstock: Bench) -> None:
    steps = [
        {"name": "paid", "wait": {"timeout_seconds": 60, "default": None}},
        call("late", "paid", when="not exists(results.paid)"),
    ]
    graph = await penstock.client.definitions.run(definition(*steps))
    await now(penstock, graph)
    await penstock.advance(61)
    assert (await now(penstock, graph)).state is GraphState.COMPLETED
    assert RAN == ["late"]


async def test_or_fails_and_waits_anew_when_the_graph_goes_on(penstock: Bench) -> None:
    graphs = penstock.client.graphs
    graph = await graphs.dispatch(
        {
            "paid": Step(wait=SignalWait(timeout_seconds=60)),
            "ship": Step(awaiting(work, "value", name="ship"), takes={"value": "paid"}),
        },
        finally_=awaiting(ended, "outcome"),
    )
    await now(penstock, graph)
    await penstock.advance(61)
    record = await now(penstock, graph)
    assert (record.state, record.failed_step) == (GraphState.FAILED, "paid")
    assert record.reason == "step 'paid' got no signal 'paid' in time"
    assert record.failed_job == ""
    assert OUTCOMES[0].counts.pending == 1
    await graphs.retry_failed(graph)
    await now(penstock, graph)
    await graphs.signal(graph, "paid", 3)
    assert (await now(penstock, graph)).state is GraphState.COMPLETED
    assert RAN == ["ship(3)"]


async def test_a_signal_that_comes_too_late_is_refused(penstock: Bench) -> None:
    graphs = penstock.client.graphs
    steps = [{"name": "paid", "wait": {"timeout_seconds": 60, "default": 0}}, call("a", "paid"),
             {"name": "end", "needs": ["a"], "wait": {}}]  # fmt: skip
    graph = await penstock.client.definitions.run(definition(*steps))
    await now(penstock, graph)
    await penstock.advance(61)
    await now(penstock, graph)
    with pytest.raises(JobRefused, match="'paid' no longer: step 'paid' waited until 2"):
        await graphs.signal(graph, "paid", 3)


# --- approvals ------------------------------------------------------------------------------------
APPROVAL = [
    call("a", compensate={"function": "waits.work", "arguments": {"name": "undo"}}),
    {"name": "release", "needs": ["a"], "approval": {"timeout_seconds": 60}},
    call("b", "release"),
]


@pytest.mark.parametrize(
    ("value", "state", "ran"),
    [
        (True, GraphState.COMPLETED, ["a", "b"]),
        (False, GraphState.FAILED, ["a", "undo"]),
        (None, GraphState.FAILED, ["a", "undo"]),
    ],
)
async def test_an_approval(
    penstock: Bench, value: bool | None, state: GraphState, ran: list[str]
) -> None:
    graph = await penstock.client.definitions.run(definition(*APPROVAL))
    await now(penstock, graph)
    if value is None:
        await penstock.advance(61)
    else:
        with pytest.raises(JobRefused, match="approved with true"):
            await penstock.client.graphs.signal(graph, "release", "yes")
        await penstock.client.graphs.signal(graph, "release", value)
    record = await now(penstock, graph)
    assert (record.state, RAN) == (state, ran)
    if state is GraphState.FAILED:
        assert record.reason.startswith("step 'release' was not approved; can no longer run: ")


async def test_a_failure_elsewhere_gives_up_what_waits(penstock: Bench) -> None:
    steps = {"broken": Step(work(name="broken")), "never": Step(wait=SignalWait())}
    graph = await penstock.client.graphs.dispatch(steps)
    record = await now(penstock, graph)
    assert (record.state, record.failed_step) == (GraphState.FAILED, "broken")


async def test_a_cancelled_graph_gives_up_what_waits(penstock: Bench) -> None:
    graph = await penstock.client.definitions.run(definition(*APPROVAL))
    await now(penstock, graph)
    await penstock.client.graphs.cancel(graph, "wrong day")
    record = await now(penstock, graph)
    assert (record.state, record.reason, RAN) == (GraphState.CANCELLED, "wrong day", ["a", "undo"])


# --- pause and time limit -------------------------------------------------------------------------
async def test_a_step_that_runs_ends_while_its_graph_is_paused(penstock: Bench) -> None:
    graphs = penstock.client.graphs
    graph = await penstock.client.definitions.run(definition(*APPROVAL))
    await now(penstock, graph)
    await graphs.pause(graph)
    await graphs.signal(graph, "release", True)
    assert (await now(penstock, graph)).is_paused
    assert RAN == ["a"]
    await graphs.resume(graph)
    assert (await now(penstock, graph)).state is GraphState.COMPLETED


async def test_a_graph_that_takes_too_long_fails_and_is_undone(penstock: Bench) -> None:
    steps = [*APPROVAL[:1], {"name": "release", "needs": ["a"], "wait": {}}, APPROVAL[2]]
    graph = await penstock.client.definitions.run(
        definition(*steps, timeout_seconds=3_600), catch=awaiting(ended, "outcome")
    )
    await now(penstock, graph)
    await penstock.advance(3_601)
    record = await now(penstock, graph)
    assert (record.state, record.reason) == (
        GraphState.FAILED, "it has not ended within 3600 s",
    )  # fmt: skip
    assert RAN == ["a", "undo"]
    assert OUTCOMES[0].state == "failed"


async def test_a_pause_does_not_count(penstock: Bench) -> None:
    graphs = penstock.client.graphs
    graph = await graphs.dispatch({"wait": Step(wait=SignalWait())}, timeout=DAY)
    await now(penstock, graph)
    await graphs.pause(graph)
    await penstock.advance(10 * DAY)
    assert (await now(penstock, graph)).is_paused
    await graphs.resume(graph)
    assert (await now(penstock, graph)).state is GraphState.RUNNING
    await penstock.advance(DAY + timedelta(seconds=5))
    assert (await now(penstock, graph)).state is GraphState.FAILED
    await graphs.retry_failed(graph)
    assert (await now(penstock, graph)).state is GraphState.RUNNING
