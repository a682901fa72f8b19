"""Chains and graphs from their dispatch to their callbacks, over both buses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests.buses import both
from tests.integration.counting import QUEUE, WITHIN, Stage
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.jobs import JobType, SignalWait, job, registry
from penstock.jobs.batches.outcome import Outcome
from penstock.jobs.dispatch.awaiting import awaiting
from penstock.jobs.errors import AlreadyDispatched, BadArguments, JobRefused
from penstock.jobs.workflows.client import Step
from penstock.jobs.workflows.graph_order import BadGraph
from penstock.jobs.workflows.graph_record import GraphState

ORDER: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ORDER.clear()


@job(queue=QUEUE)
def extract(table: str) -> list[int]:
    ORDER.append(f"extract {table}")
    return [1, 2, 3]


@job(queue=QUEUE)
def double(rows: list[int]) -> list[int]:
    ORDER.append("double")
    return [2 * row for row in rows]


@job(queue=QUEUE)
def join(left: list[int], right: list[int], sign: int = 1) -> int:
    ORDER.append("join")
    return sign * (sum(left) + sum(right))


@job(queue=QUEUE)
def mark(name: str) -> str:
    ORDER.append(name)
    return name


@job(queue=QUEUE, tries=1)
def fail(name: str) -> None:
    ORDER.append(name)
    raise ValueError(name)


@job(queue=QUEUE, tries=1)
def once_broken(name: str) -> str:
    ORDER.append(name)
    if ORDER.count(name) == 1:
        raise ValueError(name)
    return name


@job(queue=QUEUE)
def large(size: int) -> str:
    return "x" * size


@job(queue=QUEUE)
def pair(left: str, right: str, middle: str) -> int:
    return len(left) + len(right) + len(middle)


@job(queue=QUEUE)
def tell(outcome: Outcome) -> list[Any]:
    return [outcome.state, outcome.reason, outcome.failed_job, outcome.counts.completed]


JOBS: list[JobType[Any, Any]] = [extract, double, join, mark, fail, once_broken, large, pair, tell]


@pytest.fixture(scope="module", autouse=True)
def known() -> Iterator[None]:
    registry.REGISTRY.update({each.name: each for each in JOBS})
    yield
    for each in JOBS:
        registry.REGISTRY.pop(each.name, None)


@pytest.fixture(params=both("memory"))
async def stage(request: pytest.FixtureRequest, settings: MakeSettings) -> AsyncIterator[Stage]:
    async with Stage(request.param, settings) as found:
        yield found


# --- chains ---------------------------------------------------------------------------------------
async def test_a_chain_hands_each_result_on(stage: Stage) -> None:
    await stage.at_work()
    chain = await stage.client.graphs.chain(
        [extract(table="orders"), awaiting(double, "rows"), awaiting(double, "rows")],
        then=mark(name="then"),
        catch=mark(name="catch"),
    )
    record = await stage.client.graphs.wait(chain, WITHIN)
    assert record.state is GraphState.COMPLETED
    assert (await stage.client.graphs.step(chain, "3 double")).result == [4, 8, 12]
    assert await stage.result(f"{chain}_then") == "then"
    assert ORDER == ["extract orders", "double", "double", "then"]


async def test_a_failure_ends_a_chain_with_its_catch(stage: Stage) -> None:
    await stage.at_work()
    chain = await stage.client.graphs.chain(
        [mark(name="a"), fail(name="b"), mark(name="c")],
        then=mark(name="then"),
        catch=awaiting(tell, "outcome"),
        finally_=mark(name="finally"),
    )
    record = await stage.client.graphs.wait(chain, WITHIN)
    assert (record.state, record.failed_step) == (GraphState.FAILED, "2 fail")
    assert await stage.result(f"{chain}_catch") == [
        "failed", "step '2 fail' failed", f"{chain}_step_1", 1,
    ]  # fmt: skip
    assert await stage.result(f"{chain}_finally") == "finally"
    assert ORDER == ["a", "b", "finally"]


async def test_a_chain_is_cancelled(stage: Stage) -> None:
    async with stage.orchestrator():
        chain = await stage.client.graphs.chain(
            [mark(name="a"), mark(name="b")], finally_=awaiting(tell, "outcome")
        )
        await eventually(lambda: stage.exists(f"{chain}_step_0"), WITHIN)
        await stage.client.graphs.cancel(chain, "not today")
        record = await stage.client.graphs.wait(chain, WITHIN)
        assert (record.state, record.reason) == (GraphState.CANCELLED, "not today")
        async with stage.worker():
            assert (await stage.result(f"{chain}_finally"))[:2] == ["cancelled", "not today"]
    assert ORDER == []


async def test_results_too_large_to_be_handed_on_fail_the_chain(stage: Stage) -> None:
    await stage.at_work()
    steps = {name: Step(large(size=400_000)) for name in ("a", "b", "c")}
    steps["d"] = Step(
        awaiting(pair, "left", "right", "middle"),
        takes={"left": "a", "right": "b", "middle": "c"},
    )
    graph = await stage.client.graphs.dispatch(steps, catch=awaiting(tell, "outcome"))
    record = await stage.client.graphs.wait(graph, WITHIN)
    assert (record.state, record.failed_step) == (GraphState.FAILED, "d")
    assert "with the results handed on" in record.reason


# --- graphs ---------------------------------------------------------------------------------------
async def test_a_graph_runs_each_step_after_those_it_needs(stage: Stage) -> None:
    await stage.at_work()
    graph = await stage.client.graphs.dispatch(
        {
            "sum": Step(
                awaiting(join, "left", "right", sign=-1), takes={"left": "a", "right": "2b"}
            ),
            "2b": Step(awaiting(double, "rows"), after=["b"]),
            "a": Step(extract(table="a")),
            "b": Step(extract(table="b")),
            "last": Step(mark(name="last"), after=["sum"]),
        }
    )
    assert (await stage.client.graphs.wait(graph, WITHIN)).state is GraphState.COMPLETED
    assert (await stage.client.graphs.step(graph, "sum")).result == -18
    assert ORDER.index("join") > max(ORDER.index("extract a"), ORDER.index("double"))
    assert ORDER[-1] == "last"


async def test_by_level_a_group_waits_for_the_whole_group_before_it(stage: Stage) -> None:
    await stage.at_work()
    steps = {
        "a": Step(mark(name="a")),
        "slow": Step(mark(name="slow")),
        "b": Step(mark(name="b"), after=["a"]),
    }
    graph = await stage.client.graphs.dispatch(steps, by_level=True)
    record = await stage.client.graphs.wait(graph, WITHIN)
    assert {step.name: set(step.needs) for step in record.steps}["b"] == {0, 1}
    assert ORDER[-1] == "b"


async def test_a_failed_step_lets_those_that_run_end(stage: Stage) -> None:
    await stage.at_work()
    steps = {
        "bad": Step(fail(name="bad")),
        "good": Step(mark(name="good")),
        "never": Step(mark(name="never"), after=["good", "bad"]),
    }
    graph = await stage.client.graphs.dispatch(steps)
    record = await stage.client.graphs.wait(graph, WITHIN)
    assert (record.state, record.failed_step) == (GraphState.FAILED, "bad")
    assert sorted(ORDER) == ["bad", "good"]


async def test_two_orchestrators_dispatch_each_step_once(stage: Stage) -> None:
    async with stage.orchestrator(), stage.orchestrator(), stage.worker():
        chain = await stage.client.graphs.chain([mark(name=str(n)) for n in range(12)])
        assert (await stage.client.graphs.wait(chain, WITHIN)).state is GraphState.COMPLETED
    assert [str(n) for n in range(12)] == ORDER


async def test_a_chain_goes_on_with_the_next_orchestrator(stage: Stage) -> None:
    async with stage.worker():
        async with stage.orchestrator():
            chain = await stage.client.graphs.chain([mark(name=str(n)) for n in range(40)])
            await eventually(lambda: len(ORDER) >= 3, WITHIN)
        async with stage.orchestrator():
            assert (await stage.client.graphs.wait(chain, WITHIN)).state is GraphState.COMPLETED
    assert [str(n) for n in range(40)] == ORDER


async def test_waits_go_on_with_the_next_orchestrator(stage: Stage) -> None:
    graphs = stage.client.graphs
    steps = {
        "a": Step(mark(name="a")),
        "sleep": Step(sleep=0.3, after=["a"]),
        "paid": Step(wait=SignalWait(timeout_seconds=0.3), after=["a"], may_fail=True),
        "ok": Step(approval=SignalWait(), after=["sleep", "paid"], rule="all_done"),
        "b": Step(mark(name="b"), after=["ok"]),
    }
    async with stage.worker():
        async with stage.orchestrator():
            graph = await graphs.dispatch(steps)
            await eventually(lambda: _waits(stage, graph), WITHIN)
        await graphs.signal(graph, "ok", True)
        async with stage.orchestrator(), stage.orchestrator():
            record = await graphs.wait(graph, WITHIN)
    assert (record.state, ORDER) == (GraphState.COMPLETED, ["a", "b"])
    assert record.elapsed == (1, 2)


async def _waits(stage: Stage, graph: str) -> bool:
    return bool((await stage.client.graphs.show(graph)).waits)


async def test_many_graphs_wait_for_one_moment(stage: Stage) -> None:
    graphs = stage.client.graphs
    async with stage.orchestrator(), stage.orchestrator():
        ids = [
            await graphs.dispatch({"sleep": Step(sleep=0.5), "end": Step(after=["sleep"])})
            for _ in range(100)
        ]
        records = [await graphs.wait(graph, WITHIN) for graph in ids]
    assert {record.state for record in records} == {GraphState.COMPLETED}
    assert {record.elapsed for record in records} == {(0,)}


# --- going on after a failure ---------------------------------------------------------------------
async def test_a_failed_graph_goes_on_where_it_ended(stage: Stage) -> None:
    await stage.at_work()
    steps = {
        "good": Step(mark(name="good")),
        "flaky": Step(once_broken(name="flaky")),
        "sum": Step(mark(name="sum"), after=["good", "flaky"]),
    }
    graph = await stage.client.graphs.dispatch(
        steps, then=mark(name="then"), catch=mark(name="catch"), finally_=mark(name="finally")
    )
    assert (await stage.client.graphs.wait(graph, WITHIN)).state is GraphState.FAILED
    assert await stage.result(f"{graph}_catch") == "catch"
    assert await stage.result(f"{graph}_finally") == "finally"
    reopened = await stage.client.graphs.retry_failed(graph)
    assert (reopened.state, reopened.round, reopened.failed_step) == (GraphState.RUNNING, 1, "")
    assert (await stage.client.graphs.wait(graph, WITHIN)).state is GraphState.COMPLETED
    assert await stage.result(f"{graph}_then_1") == "then"
    assert await stage.result(f"{graph}_finally_1") == "finally"
    assert ORDER.count("good") == ORDER.count("sum") == 1
    assert ORDER.count("flaky") == 2


async def test_it_goes_on_also_when_the_orchestrator_comes_later(stage: Stage) -> None:
    async with stage.worker():
        async with stage.orchestrator():
            chain = await stage.client.graphs.chain([once_broken(name="a"), mark(name="b")])
            await stage.client.graphs.wait(chain, WITHIN)
        await stage.client.graphs.retry_failed(chain)
        async with stage.orchestrator(), stage.orchestrator():
            assert (await stage.client.graphs.wait(chain, WITHIN)).state is GraphState.COMPLETED
    assert ORDER == ["a", "a", "b"]


async def test_a_cancelled_chain_goes_on(stage: Stage) -> None:
    async with stage.orchestrator():
        chain = await stage.client.graphs.chain([mark(name="a"), mark(name="b")])
        await eventually(lambda: stage.exists(f"{chain}_step_0"), WITHIN)
        await stage.client.graphs.cancel(chain)
        await stage.client.graphs.wait(chain, WITHIN)
        await stage.client.graphs.retry_failed(chain)
        async with stage.worker():
            assert (await stage.client.graphs.wait(chain, WITHIN)).state is GraphState.COMPLETED
    assert ORDER == ["a", "b"]


async def test_what_fails_again_ends_it_again(stage: Stage) -> None:
    await stage.at_work()
    chain = await stage.client.graphs.chain([fail(name="a"), mark(name="b")])
    await stage.client.graphs.wait(chain, WITHIN)
    await stage.client.graphs.retry_failed(chain)
    record = await stage.client.graphs.wait(chain, WITHIN)
    assert (record.state, record.round, record.failed_step) == (GraphState.FAILED, 1, "1 fail")
    assert ORDER == ["a", "a"]


async def test_one_that_completed_does_not_go_again(stage: Stage) -> None:
    await stage.at_work()
    chain = await stage.client.graphs.chain([mark(name="a")])
    await stage.client.graphs.wait(chain, WITHIN)
    with pytest.raises(JobRefused, match="is completed; only failed or cancelled ones can go on"):
        await stage.client.graphs.retry_failed(chain)


# --- what is refused ------------------------------------------------------------------------------
async def test_a_cycle_is_refused_with_its_path(stage: Stage) -> None:
    steps = {
        "a": Step(mark(name="a"), after=["c"]),
        "b": Step(mark(name="b"), after=["a"]),
        "c": Step(mark(name="c"), after=["b"]),
        "d": Step(mark(name="d")),
    }
    with pytest.raises(BadGraph, match=r"steps need each other: (a|b|c) → . → . → \1"):
        await stage.client.graphs.dispatch(steps)


async def test_a_step_that_is_not_there_is_refused(stage: Stage) -> None:
    steps = {"load": Step(mark(name="a"), after=["extrac"]), "extract": Step(mark(name="b"))}
    with pytest.raises(BadGraph, match="did you mean 'extract'"):
        await stage.client.graphs.dispatch(steps)


async def test_what_cannot_be_filled_is_refused(stage: Stage) -> None:
    chain = stage.client.graphs.chain
    with pytest.raises(BadGraph, match="parameter 'rows' is left open and takes no step's result"):
        await chain([awaiting(double, "rows")])
    with pytest.raises(BadArguments, match="no parameter 'row'"):
        awaiting(double, "row")
    with pytest.raises(BadArguments, match="Expected `int`"):
        awaiting(join, "left", "right", sign="plus")
    with pytest.raises(BadGraph, match="1 to 1000 steps"):
        await chain([])


async def test_a_result_of_the_wrong_type_fails_the_chain(stage: Stage) -> None:
    await stage.at_work()
    chain = await stage.client.graphs.chain([mark(name="a"), awaiting(double, "rows")])
    record = await stage.client.graphs.wait(chain, WITHIN)
    assert (record.state, record.failed_step) == (GraphState.FAILED, "2 double")


async def test_a_graph_of_a_known_name_is_refused(stage: Stage) -> None:
    await stage.client.graphs.chain([mark(name="a")], graph_id="nightly")
    with pytest.raises(AlreadyDispatched):
        await stage.client.graphs.chain([mark(name="a")], graph_id="nightly")
    with pytest.raises(JobRefused):
        await stage.client.graphs.chain([large(size=1)] * 1001)
