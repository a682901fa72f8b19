"""Definitions that would take unbounded work fail by themselves; others are run meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.declared.test_declared_bounds import condition, doubling

from penstock.bus.protocol import Outgoing
from penstock.events.envelope import encode
from penstock.events.graph import GraphStarted, GraphStep
from penstock.jobs import BadGraph, Step, job
from penstock.jobs.workflows.declared import reading
from penstock.jobs.workflows.graph_record import GraphState
from penstock.testing import Bench
from penstock.views.graph_board import graph_detail


@job(name="bounds.work", queue="work", tries=1)
def work(value: Any = None) -> None:
    pass


@job(name="bounds.large", queue="work", tries=1)
def large() -> str:
    return "x" * 400_000


async def test_a_workflow_of_doubling_joins_fails_beside_one_that_completes(
    penstock: Bench,
) -> None:
    graphs = penstock.client.graphs
    definition = doubling(60, function="bounds.work")
    bad = await penstock.client.definitions.run(definition)
    good = await graphs.chain([work(), work()])
    await penstock.run_pending()
    record = await graphs.show(bad)
    assert record.state is GraphState.FAILED
    assert record.reason.startswith("step 'j16' failed: what it joins has 2,752,495 bytes")
    assert (await graphs.show(good)).state is GraphState.COMPLETED
    detail = graph_detail(record, await graphs.jobs(record), record.started_at)
    assert any("what it joins has" in reason for reason in detail.why)


async def test_a_forged_start_of_too_much_work_fails_with_the_reason(penstock: Bench) -> None:
    steps = tuple(GraphStep(name=f"s{n}", payload=b"", when=condition(99)) for n in range(250))
    event = GraphStarted(graph_id="forged", source="evil", steps=steps)
    await penstock.bus.append(Outgoing(penstock.bus.subjects.event(event), encode(event)))
    await penstock.run_pending()
    record = await penstock.client.graphs.show("forged")
    assert record.state is GraphState.FAILED
    assert "its steps have 25,250 parts of conditions" in record.reason


async def test_a_graph_of_too_much_work_is_refused_when_it_is_dispatched(penstock: Bench) -> None:
    steps = {f"s{n}": Step(work(), when=condition(99)) for n in range(300)}
    with pytest.raises(BadGraph, match=r"30,300 parts of conditions.*at most 20,000"):
        await penstock.client.graphs.dispatch(steps, context={"k": 1})


async def test_arguments_beyond_any_message_fail_a_step_before_they_are_in_memory(
    penstock: Bench,
) -> None:
    many = {f"p{n}": "results.a" for n in range(100)}
    parts = {f"p{n}": "results.all.a" for n in range(100)}
    steps = [
        {"name": "a", "function": "bounds.large"},
        {"name": "whole", "function": "other.f", "queue": "work", "needs": ["a"], "takes": many},
        {"name": "all", "needs": ["a"], "takes": {"a": "results.a"}},
        {"name": "part", "function": "other.f", "queue": "work", "needs": ["all"], "takes": parts},
    ]
    graph = await penstock.client.definitions.run(
        reading.from_values({"name": "w", "steps": steps})
    )
    await penstock.run_pending()
    record = await penstock.client.graphs.show(graph)
    assert record.state is GraphState.FAILED
    assert record.reason.endswith("handed on: they have more than 8,000,000 bytes")
