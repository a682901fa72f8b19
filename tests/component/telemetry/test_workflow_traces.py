"""A batch and a graph are one trace each: their own span, their jobs, and links of the steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.integration.otlp import Collector, Received

from penstock import telemetry
from penstock.config.load import check
from penstock.jobs import Step, awaiting, job, registry
from penstock.testing import Bench


@job(queue="orders")
def extract(table: str) -> list[int]:
    return [1, 2, 3]


@job(queue="orders")
def load(rows: list[int]) -> int:
    return len(rows)


@job(queue="orders", tries=1)
def fail(rows: list[int]) -> None:
    raise ValueError(len(rows))


@job(queue="orders")
def report() -> None: ...


JOBS = (extract, load, fail, report)


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    registry.REGISTRY.update({each.name: each for each in JOBS})
    yield
    for each in JOBS:
        del registry.REGISTRY[each.name]


@contextmanager
def traced() -> Iterator[Collector]:
    """All that was traced in the block has arrived after it."""
    with Collector() as collector:
        flags = {"endpoint": collector.endpoint, "service_name": "shop", "signals": ["traces"]}
        shutdown = telemetry.setup("penstock-test", "one", check({"telemetry": flags}))
        try:
            yield collector
        finally:
            shutdown()


def by_function(spans: list[Received]) -> dict[str, Received]:
    return {
        str(span.attributes["penstock.job.function"]).rpartition(".")[2]: span for span in spans
    }


async def test_a_graph_is_one_trace_and_its_steps_link_to_those_before(penstock: Bench) -> None:
    steps = {
        "extract": Step(extract(table="orders")),
        "load": Step(awaiting(load, "rows"), after=["extract"]),
    }
    with traced() as collector:
        graph_id = await penstock.client.graphs.dispatch(steps, title="nightly", finally_=report())
        await penstock.run_pending()
    graph = collector.wait_for("graph")
    runs, dispatches = (
        by_function(collector.wait_for_all(word, 3)) for word in ("run", "dispatch")
    )
    whole = collector.wait_for(lambda span: span.name == "graph as a whole")
    assert {span.trace_id for span in (*runs.values(), *dispatches.values(), whole)} == {
        graph.trace_id
    }
    assert {span.parent_id for span in (*dispatches.values(), whole)} == {graph.span_id}
    assert runs["load"].parent_id == dispatches["load"].span_id
    assert dispatches["load"].links == ((graph.trace_id, dispatches["extract"].span_id),)
    assert graph.service == "shop-test"
    assert whole.attributes == {
        "penstock.workflow.id": graph_id,
        "penstock.workflow.title": "nightly",
        "penstock.workflow.state": "completed",
    }


async def test_the_jobs_of_a_batch_and_its_callback_are_one_trace(penstock: Bench) -> None:
    calls = [extract(table="a"), fail(rows=[1])]
    with traced() as collector:
        await penstock.client.batches.create(calls, title="two", finally_=report())
        await penstock.run_pending()
    batch = collector.wait_for("batch")
    runs = collector.wait_for_all("run", 3)
    whole = collector.wait_for(lambda span: span.name == "batch as a whole")
    assert {span.trace_id for span in (*runs, whole)} == {batch.trace_id}
    assert whole.attributes["penstock.workflow.state"] == "failed"
    assert whole.failed
