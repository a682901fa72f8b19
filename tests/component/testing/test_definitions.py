"""Definitions of workflows: stored, versioned, run as graphs that keep a copy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from penstock.bus.protocol import Outgoing
from penstock.config import Settings
from penstock.config.load import check
from penstock.jobs import AlreadyDispatched, BadGraph, JobRefused, NotFound, job, registry
from penstock.jobs.workflows.declared import reading
from penstock.jobs.workflows.declared.definition import Definition, digest
from penstock.jobs.workflows.graph_record import GraphState
from penstock.testing import Bench

RAN: list[str] = []

ORDERS = """
name = "orders"
required = ["order"]
context = { gateway = "stripe" }

[[steps]]
name = "check"
function = "definitions.check"
takes = { order = "context.order" }

[[steps]]
name = "pay"
needs = ["check"]
when = "results.check.total > 0"
branch = { on = "context.gateway", cases.stripe = { function = "definitions.work", arguments = { name = "stripe" } }, cases.paypal = { function = "definitions.work", arguments = { name = "paypal" } } }
tries = 2
compensate = { function = "definitions.work", arguments = { name = "refund" } }

[[steps]]
name = "ship"
function = "definitions.work"
arguments = { name = "ship" }
needs = ["pay"]
queue = "slow"
"""  # noqa: E501 - an inline table of TOML 1.0 has no line breaks


@job(name="definitions.check", queue="orders")
def check_order(order: dict[str, int]) -> dict[str, int]:
    RAN.append("check")
    return order


@job(name="definitions.work", queue="orders", tries=1)
def work(name: str, fails: bool = False) -> None:
    RAN.append(name)
    if fails:
        raise ValueError(name)


@job(name="definitions.large", queue="orders")
def large() -> str:
    return "x" * 400_000


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    RAN.clear()
    registry.REGISTRY.update({kind.name: kind for kind in (check_order, work, large)})
    yield
    for kind in (check_order, work, large):
        registry.REGISTRY.pop(kind.name, None)


@pytest.fixture
def penstock_settings() -> Settings:
    return check({"pools": {"orders": {"kind": "group", "queues": ["orders", "slow"]}}})


def changed(**fields: Any) -> Definition:
    return msgspec.structs.replace(reading.from_toml(ORDERS), **fields)


async def test_a_definition_is_stored_and_run(penstock: Bench) -> None:
    definitions = penstock.client.definitions
    stored = await definitions.define(reading.from_toml(ORDERS))
    assert stored.digest == digest(stored.definition)
    graph = await definitions.run("orders", {"order": {"total": 5}, "gateway": "paypal"})
    await penstock.run_pending()
    record = await penstock.client.graphs.show(graph)
    assert (record.state, record.title) == (GraphState.COMPLETED, "orders 1")
    assert (record.definition, record.version, record.digest) == ("orders", 1, stored.digest)
    assert RAN == ["check", "paypal", "ship"]
    ship = await penstock.client.graphs.step(graph, "ship")
    assert ship.record.queue == "slow"


async def test_an_instance_keeps_the_definition_that_it_was_started_with(penstock: Bench) -> None:
    definitions = penstock.client.definitions
    await definitions.define(reading.from_toml(ORDERS))
    graph = await definitions.run("orders", {"order": {"total": 5}})
    other = reading.from_toml(ORDERS.replace('name = "ship" }', 'name = "send" }'))
    await definitions.define(msgspec.structs.replace(other, version=2))
    await penstock.run_pending()
    assert RAN == ["check", "stripe", "ship"]
    assert (await penstock.client.graphs.show(graph)).version == 1


async def test_a_version_is_stored_once(penstock: Bench) -> None:
    definitions = penstock.client.definitions
    first = await definitions.define(changed(version=2))
    assert await definitions.define(changed(version=2)) == first
    for version in (1, 2):
        with pytest.raises(JobRefused, match="raise the version to 3"):
            await definitions.define(changed(version=version, description="another"))
    await definitions.define(changed(version=3, description="another"))
    assert (await definitions.get("orders")).definition.version == 3


async def test_of_clients_that_define_at_once_one_is_first(penstock: Bench) -> None:
    definitions = penstock.client.definitions
    wanted = [changed(description=str(number)) for number in range(5)]
    outcomes = await asyncio.gather(*map(definitions.define, wanted), return_exceptions=True)
    assert sum(isinstance(outcome, JobRefused) for outcome in outcomes) == 4


async def test_what_completed_is_undone_of_a_definition_too(penstock: Bench) -> None:
    steps = list(reading.from_toml(ORDERS).steps)
    steps[2] = msgspec.structs.replace(steps[2], arguments={"name": "ship", "fails": True})
    graph = await penstock.client.definitions.run(
        changed(steps=tuple(steps)), {"order": {"total": 5}}
    )
    await penstock.run_pending()
    assert (await penstock.client.graphs.show(graph)).state is GraphState.FAILED
    assert RAN == ["check", "stripe", "ship", "refund"]


async def test_definitions_are_listed_and_removed(penstock: Bench) -> None:
    definitions = penstock.client.definitions
    await definitions.define(changed(name="b"))
    await definitions.define(changed(name="a"))
    assert [record.definition.name for record in await definitions.all()] == ["a", "b"]
    await definitions.remove("a")
    with pytest.raises(NotFound, match="no workflow 'a' is defined"):
        await definitions.run("a")
    with pytest.raises(NotFound):
        await definitions.remove("a")


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({}, "requires a value of 'order'"),
        ({"order": 1, "gatway": "x"}, "no key 'gatway' in its context; it has gateway, order"),
        ({"order": b"bytes"}, "JSON cannot hold"),
        ({"order": "x" * 300_000}, "256,000 bytes"),
    ],
)
async def test_a_context_that_is_not_as_declared(
    penstock: Bench, context: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadGraph, match=message):
        await penstock.client.definitions.run(reading.from_toml(ORDERS), context)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "ship" }', "nmae = 1 }", "step 'ship': .*nmae"),
        ('function = "definitions.check"', 'function = "definitions.absent"', "name its queue"),
        ('{ order = "context.order" }', '{ ordr = "context.order" }', "no parameter 'ordr'"),
    ],
)
async def test_calls_are_checked_before_anything_runs(
    penstock: Bench, old: str, new: str, message: str
) -> None:
    definition = reading.from_toml(ORDERS.replace(old, new))
    with pytest.raises(BadGraph, match=message):
        await penstock.client.definitions.run(definition, {"order": {"total": 1}})


async def test_a_function_that_is_not_known_here_runs_by_its_name(penstock: Bench) -> None:
    definition = changed(queue="orders")
    registry.REGISTRY.pop(check_order.name)
    graph = await penstock.client.definitions.run(definition, {"order": {"total": 0}})
    registry.REGISTRY[check_order.name] = check_order
    await penstock.run_pending()
    assert (await penstock.client.graphs.show(graph)).state is GraphState.COMPLETED
    assert RAN == ["check", "ship"]


async def test_results_that_are_too_large_to_be_handed_on_fail_the_instance(
    penstock: Bench,
) -> None:
    steps = [
        {"name": f"s{n}", "function": "definitions.large", "sets": {f"k{n}": "result"}}
        for n in range(3)
    ]
    both = {
        "name": "both", "function": "definitions.check", "needs": ["all"],
        "takes": {"order": "results.all"},
    }  # fmt: skip
    join = {
        "name": "all", "needs": ["s0", "s1", "s2"],
        "takes": {f"k{n}": f"context.k{n}" for n in range(3)},
    }  # fmt: skip
    context = dict.fromkeys(("k0", "k1", "k2"), "")
    definition = {"name": "w", "context": context, "steps": [*steps, join, both]}
    graph = await penstock.client.definitions.run(reading.from_values(definition))
    await penstock.run_pending()
    record = await penstock.client.graphs.show(graph)
    assert (record.state, record.failed_step) == (GraphState.FAILED, "both")
    assert record.reason.startswith("step 'both' with the results handed on: ")
    assert (await penstock.client.graphs.step(graph, "s0")).result == "x" * 400_000


async def test_an_id_makes_the_start_idempotent(penstock: Bench) -> None:
    context = {"order": {"total": 5}}
    await penstock.client.definitions.run(changed(), context, graph_id="mine")
    with pytest.raises(AlreadyDispatched):
        await penstock.client.definitions.run(changed(), context, graph_id="mine")


async def test_a_record_that_is_no_definition_is_passed_over(penstock: Bench) -> None:
    client = penstock.client
    await client.definitions.define(changed())
    subjects, bus = client.definitions._subjects, client.definitions._bus
    for name, body in (("x", b"{"), ("y", b'{"definition": {"name": "orders", "steps": []}}')):
        await bus.append(Outgoing(subjects.state("definition", name), body))
    assert [record.definition.name for record in await client.definitions.all()] == ["orders"]
    with pytest.raises(NotFound):
        await client.definitions.get("x")
