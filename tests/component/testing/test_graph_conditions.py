"""Conditions, branches, rules, tries and compensation of graphs, in the real worker."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from penstock.config import Settings
from penstock.config.load import check
from penstock.jobs import JobRefused, Outcome, Step, awaiting, job, registry
from penstock.jobs.lifecycle import State
from penstock.jobs.workflows.graph_record import GraphState
from penstock.testing import Bench

RAN: list[str] = []
OUTCOMES: list[Outcome] = []


@job(queue="orders", tries=1)
def check_order(total: int, gateway: str = "stripe") -> dict[str, Any]:
    RAN.append("check")
    return {"total": total, "gateway": gateway, "lines": [{"id": "l1"}, {"id": "l2"}]}


@job(queue="orders", tries=1)
def work(name: str, value: Any = None) -> Any:
    RAN.append(name if value is None else f"{name}({value})")
    if name.startswith("broken"):
        raise ValueError(name)
    return value


@job(queue="orders", tries=1)
def flaky(attempts: int) -> None:
    RAN.append("flaky")
    if RAN.count("flaky") < attempts:
        raise ValueError("not yet")


@job(queue="orders")
def ended(outcome: Outcome) -> None:
    OUTCOMES.append(outcome)


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    RAN.clear()
    OUTCOMES.clear()
    registry.REGISTRY.update({kind.name: kind for kind in (check_order, work, flaky, ended)})
    yield


@pytest.fixture
def penstock_settings() -> Settings:
    return check({"pools": {"orders": {"kind": "group", "queues": ["orders", "slow"]}}})


async def run(penstock: Bench, steps: dict[str, Step], **options: Any) -> tuple[str, GraphState]:
    graph = await penstock.client.graphs.dispatch(steps, **options)
    await penstock.run_pending()
    return graph, (await penstock.client.graphs.show(graph)).state


async def test_a_condition_skips_a_step_and_what_follows_runs(penstock: Bench) -> None:
    steps = {
        "check": Step(check_order(total=90)),
        "review": Step(work(name="review"), ["check"], when="results.check.total > 100"),
        "ship": Step(work(name="ship"), ["review"]),
    }
    _, state = await run(penstock, steps, finally_=awaiting(ended, "outcome"))
    assert RAN == ["check", "ship"]
    assert state is GraphState.COMPLETED
    counts = OUTCOMES[0].counts
    assert (counts.pending, counts.completed, counts.total) == (0, 2, 2)


async def test_a_branch_makes_one_call_and_hands_on_parts_of_results(penstock: Bench) -> None:
    steps = {
        "check": Step(check_order(total=90, gateway="paypal"), sets={"gateway": "result.gateway"}),
        "pay": Step(
            branch={
                "stripe": awaiting(work, "value", name="stripe"),
                "paypal": awaiting(work, "value", name="paypal"),
            },
            on="context.gateway",
            takes={"value": "results.check.lines[1].id"},
        ),
        "ship": Step(awaiting(work, "value", name="ship"), ["pay"]),
    }
    _, state = await run(penstock, steps, context={"gateway": "stripe"})
    assert RAN == ["check", "paypal(l2)", "ship(l2)"]
    assert state is GraphState.COMPLETED


async def test_what_completed_is_undone_when_the_graph_fails(penstock: Bench) -> None:
    undo = awaiting(work, "value", name="undo")
    steps = {
        "a": Step(work(name="a", value=1), compensate=undo),
        "b": Step(work(name="b", value=2), ["a"], compensate=undo),
        "c": Step(work(name="broken"), ["b"], compensate=undo),
    }
    graph, state = await run(penstock, steps, catch=awaiting(ended, "outcome"))
    assert RAN == ["a(1)", "b(2)", "broken", "undo(2)", "undo(1)"]
    assert state is GraphState.FAILED
    assert OUTCOMES[0].reason == "step 'c' failed"
    with pytest.raises(JobRefused, match="undone"):
        await penstock.client.graphs.retry_failed(graph)


async def test_a_cancelled_graph_undoes_what_completed(penstock: Bench) -> None:
    steps = {
        "a": Step(work(name="a"), compensate=work(name="undo")),
        "b": Step(work(name="b"), ["a"], delay=timedelta(hours=1)),
    }
    graph, state = await run(penstock, steps)
    assert state is GraphState.RUNNING
    await penstock.client.graphs.cancel(graph)
    await penstock.run_pending()
    assert (await penstock.client.graphs.show(graph)).state is GraphState.CANCELLED
    assert RAN == ["a", "undo"]


async def test_steps_that_can_no_longer_run_fail_the_graph_with_the_path(penstock: Bench) -> None:
    steps = {
        "a": Step(work(name="broken")),
        "b": Step(work(name="b"), ["a"]),
        "alarm": Step(work(name="alarm"), ["b"], rule="any_failed"),
        "beside": Step(work(name="beside")),
    }
    graph, state = await run(penstock, steps, on_failure="continue")
    assert sorted(RAN) == ["alarm", "beside", "broken"]
    record = await penstock.client.graphs.show(graph)
    assert (state, record.failed_step) == (GraphState.FAILED, "a")
    assert record.reason == "step 'a' failed; can no longer run: a → b"


async def test_retried_steps_go_on_where_the_graph_ended(penstock: Bench) -> None:
    """A step that was blocked, or skipped, is judged anew."""
    steps = {
        "a": Step(flaky(attempts=2)),
        "b": Step(work(name="b"), ["a"]),
        "alarm": Step(work(name="alarm"), ["b"], rule="any_failed"),
    }
    graph, state = await run(penstock, steps, on_failure="continue")
    assert (state, RAN) == (GraphState.FAILED, ["flaky", "alarm"])
    await penstock.client.graphs.retry_failed(graph)
    await penstock.run_pending()
    assert (await penstock.client.graphs.show(graph)).state is GraphState.COMPLETED
    assert RAN == ["flaky", "alarm", "flaky", "b"]


async def test_a_step_has_tries_of_its_own(penstock: Bench) -> None:
    _, state = await run(penstock, {"a": Step(flaky(attempts=3), tries=3)})
    assert (state, len(RAN)) == (GraphState.COMPLETED, 3)


async def test_a_join_and_a_failure_that_may_be(penstock: Bench) -> None:
    steps = {
        "a": Step(work(name="broken"), may_fail=True),
        "b": Step(work(name="b")),
        "both": Step(after=["a", "b"], rule="all_done"),
        "c": Step(work(name="c"), ["both"], queue="slow"),
    }
    graph, state = await run(penstock, steps)
    assert state is GraphState.COMPLETED
    assert sorted(RAN) == ["b", "broken", "c"]
    view = await penstock.client.graphs.step(graph, "c")
    assert (view.state, view.record.queue) == (State.COMPLETED, "slow")


async def test_an_argument_of_a_skipped_step_is_left_out(penstock: Bench) -> None:
    steps = {
        "a": Step(work(name="a"), when="context.wanted"),
        "b": Step(awaiting(work, "value", name="b"), ["a"]),
    }
    _, state = await run(penstock, steps, context={"wanted": False})
    assert (state, RAN) == (GraphState.COMPLETED, ["b"])


async def test_a_condition_that_cannot_be_judged_fails_its_step(penstock: Bench) -> None:
    steps = {
        "check": Step(check_order(total=90)),
        "b": Step(work(name="b"), ["check"], when="results.check > 3"),
    }
    graph, state = await run(penstock, steps)
    assert state is GraphState.FAILED
    assert "its condition: two numbers" in (await penstock.client.graphs.show(graph)).reason


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Step(work(name="b"), when="results.a > 3"), "add it to needs"),
        (Step(work(name="b"), ["a"], when="results.a >"), "condition"),
        (Step(work(name="b"), ["a"], rule="one_failed"), "unknown rule 'one_failed'"),
        (Step(work(name="b"), ["a"], rule="any_failed"), "set on_failure"),
        (Step(work(name="b"), ["a"], sets={"k": "result"}), "no key of the context"),
        (Step(work(name="b"), ["a"], branch={"x": work(name="x")}), "a call and a branch"),
        (Step(branch={"x": work(name="x")}, on="gateway"), "path"),
        (Step(awaiting(work, "value", name="b"), takes={"value": "context.absent"}), "context"),
        (Step(), "nothing would run"),
    ],
)
async def test_what_is_refused_at_dispatch(penstock: Bench, step: Step, message: str) -> None:
    with pytest.raises(JobRefused, match=message):
        await penstock.client.graphs.dispatch({"a": Step(work(name="a")), "b": step})
    assert not RAN
