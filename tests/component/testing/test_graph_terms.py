"""Queue, priority, delay and tags of the steps of a graph; what a step is told of its place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.config import Settings
from penstock.config.load import check
from penstock.jobs import (
    Context,
    JobRefused,
    NotFound,
    Step,
    WorkflowContext,
    awaiting,
    job,
    registry,
    workflow,
)
from penstock.jobs.errors import BadTime
from penstock.jobs.lifecycle import State
from penstock.jobs.workflows.declared import reading
from penstock.testing import Bench

PLACES: list[tuple[str, str, str, int]] = []


def note_place(context: Context) -> None:
    place = context.graph
    assert place is not None
    PLACES.append((place.id, place.name, place.step, place.index))


@job(queue="orders", tags=["own"])
def extract(context: Context) -> int:
    note_place(context)
    return 3


@job(queue="orders")
def load(context: Context, rows: int) -> int:
    note_place(context)
    return rows


@job(queue="orders")
def alone(context: Context) -> bool:
    return context.graph is None


@workflow(queue="orders")
async def coded(ctx: WorkflowContext, rows: int) -> int:
    return await ctx.run(load(rows=rows))


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    PLACES.clear()
    registry.REGISTRY.update({kind.name: kind for kind in (extract, load, alone, coded)})
    yield


@pytest.fixture
def penstock_settings() -> Settings:
    queues = {"queues": ["orders", "quick"], "priorities": True}
    return check({"pools": {"orders": {"kind": "group", **queues}}})


async def test_terms_of_the_whole_and_of_a_step(penstock: Bench) -> None:
    graph = await penstock.client.graphs.chain(
        [extract(), Step(awaiting(load, "rows"), queue="quick", priority="low", tags=["late"])],
        priority="high",
        tags=["nightly"],
        title="nightly load",
    )
    await penstock.run_pending()
    first = (await penstock.client.graphs.step(graph, "1 extract")).record
    second = (await penstock.client.graphs.step(graph, "2 load")).record
    assert (first.queue, first.tags) == ("orders--high", ("own", "nightly"))
    assert (second.queue, second.tags) == ("quick--low", ("nightly", "late"))
    assert (first.state, second.state) == (State.COMPLETED, State.COMPLETED)
    name = "nightly load"
    assert [(graph, name, "1 extract", 0), (graph, name, "2 load", 1)] == PLACES


async def test_a_step_of_a_definition_or_a_coded_workflow_knows_its_place(penstock: Bench) -> None:
    steps = [{"name": "get", "function": extract.name, "queue": "orders"}]
    graph = await penstock.client.definitions.run(
        reading.from_values({"name": "orders", "steps": steps})
    )
    workflow_id = await penstock.client.dispatch(coded(rows=2))
    await penstock.run_pending()
    assert [
        (graph, "orders", "get", 0),
        (workflow_id, coded.name, load.name.rpartition(".")[2], 0),
    ] == sorted(PLACES, key=lambda place: place[2])


async def test_a_job_of_its_own_is_in_no_graph(penstock: Bench) -> None:
    job_id = await penstock.client.dispatch(alone())
    await penstock.run_pending()
    assert (await penstock.client.job(job_id)).result is True


async def test_a_delay_begins_when_the_turn_of_the_step_comes(penstock: Bench) -> None:
    graphs = penstock.client.graphs
    graph = await graphs.dispatch(
        {"a": Step(extract()), "b": Step(awaiting(load, "rows"), ["a"], delay=60)}, delay=30
    )
    await penstock.run_pending()
    assert (await graphs.step(graph, "a")).state is State.SCHEDULED
    await penstock.advance(31)
    await penstock.run_pending()
    assert (await graphs.step(graph, "a")).state is State.COMPLETED
    assert (await graphs.step(graph, "b")).state is State.SCHEDULED
    await penstock.advance(61)
    await penstock.run_pending()
    assert (await graphs.step(graph, "b")).state is State.COMPLETED


async def test_terms_that_cannot_be_are_refused_at_dispatch(penstock: Bench) -> None:
    graphs = penstock.client.graphs
    with pytest.raises(BadTime):
        await graphs.chain([extract()], delay=-1)
    with pytest.raises(JobRefused, match="no priorities"):
        await graphs.chain([extract()], queue="elsewhere", priority="high", graph_id="refused")
    with pytest.raises(ValueError, match="at most 10 tags"):
        await graphs.chain([extract()], tags=[str(number) for number in range(11)])
    with pytest.raises(NotFound):
        await graphs.show("refused")
