"""A graph comes to the same end wherever its orchestrator is killed: at each message it stores."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.component.orchestrator.graph_world import GraphWorld, Kill
from tests.unit.declared.orders import TOML
from tests.unit.declared.test_declared_model import MOST, OUTCOMES, definitions

from penstock.jobs import NamedJob
from penstock.jobs.batches.slots import Slot
from penstock.jobs.workflows.declared import reading
from penstock.jobs.workflows.declared.definition import Definition

END = NamedJob("end", queue="q")
Act = Callable[[GraphWorld], Awaitable[Any]]
CALLBACKS = {"then": END(), "catch": END(), "finally_": END()}


async def at_each_message(
    definition: Definition,
    ends: dict[str, Slot],
    results: dict[str, Any],
    after_start: Act | None = None,
    **terms: Any,
) -> dict[str, Any]:
    """The outcome, which is the same wherever the orchestrator is killed.

    Args:
        definition: of the graph.
        ends: how jobs and waits end, by the names of the steps; else they complete.
        results: of those that complete.
        after_start: brings a graph that was started to its end, in another way than by waiting.
        terms: of the graph's start.
    """

    async def story(kill: Kill) -> dict[str, Any]:
        world = GraphWorld(ends, results, kill)
        await world.start(definition, **terms, **CALLBACKS)
        await (after_start or GraphWorld.until_ended)(world)
        return await world.outcome()

    undisturbed = Kill()
    expected = await story(undisturbed)
    assert len(expected["jobs"]) == len(expected["arguments"]), "a job was dispatched twice"
    for number in range(1, undisturbed.stored + 1):
        for after in (False, True):
            assert await story(Kill(number, after)) == expected, f"killed at {number}, {after=}"
    return expected


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=12)
@given(
    definitions(),
    st.lists(OUTCOMES, min_size=MOST, max_size=MOST),
    st.lists(st.integers(0, 3), min_size=MOST, max_size=MOST),
)
async def test_a_random_definition(
    definition: Definition, ends: list[Slot], numbers: list[int]
) -> None:
    names = [step.name for step in definition.steps]
    await at_each_message(
        msgspec.structs.replace(definition, queue="q"),
        dict(zip(names, ends, strict=False)),
        dict(zip(names, numbers, strict=False)),
    )


@pytest.mark.parametrize("ship", [Slot.COMPLETED, Slot.FAILED, Slot.CANCELLED])
async def test_a_definition_with_a_branch_values_and_compensation(ship: Slot) -> None:
    results = {"check": {"total": 9, "gateway": "paypal"}, "pay/paypal": {"id": "p1"}}
    text = TOML.replace('priority = "high"\n', "").replace("shop.", "killed.")
    definition = reading.from_toml(text)
    context = {"order": {"id": 1}}
    outcome = await at_each_message(definition, {"ship": ship}, results, context=context)
    assert {"payment": "p1", "carrier": "post"} in outcome["arguments"].values()
    is_undone = {"payment": "p1"} in outcome["arguments"].values()
    assert is_undone is (ship is not Slot.COMPLETED)


async def test_a_time_limit() -> None:
    steps: list[dict[str, Any]] = [
        {"name": "a", "function": "f", "compensate": {"function": "undo"}},
        {"name": "b", "wait": {"timeout_seconds": 86_400}, "needs": ["a"]},
    ]
    definition = reading.from_values(
        {"name": "w", "queue": "q", "timeout_seconds": 60, "steps": steps}
    )
    outcome = await at_each_message(definition, {"b": Slot.FAILED}, {})
    assert outcome["reason"] == "it has not ended within 60 s"
    assert outcome["graph"] == ["GraphStarted", "GraphWaiting", "GraphTimedOut", "GraphFailed"]


async def test_a_workflow_in_a_workflow() -> None:
    inner = reading.from_values(
        {
            "name": "inner",
            "required": ["n"],
            "returns": {"sum": "results.b"},
            "steps": [
                {"name": "ok", "approval": {"timeout_seconds": 60}},
                {"name": "b", "function": "f", "needs": ["ok"], "takes": {"n": "context.n"}},
            ],
        }
    )
    outer = reading.from_values(
        {
            "name": "outer",
            "queue": "q",
            "steps": [
                {"name": "a", "function": "f"},
                {"name": "part", "workflow": "inner", "needs": ["a"], "takes": {"n": "results.a"}},
                {
                    "name": "end", "function": "f", "needs": ["part"],
                    "takes": {"sum": "results.part.sum"},
                },
            ],
        }
    )  # fmt: skip
    outcome = await at_each_message(
        outer, {}, {"a": 3, "part/ok": True, "part/b": 7}, inner=[inner]
    )
    assert list(outcome["arguments"].values()).count({"sum": 7}) == 1


CHAIN = reading.from_values(
    {
        "name": "chain",
        "queue": "q",
        "on_failure": "stop",
        "steps": [
            {"name": "a", "function": "f"},
            {"name": "ok", "approval": {"timeout_seconds": 60}, "needs": ["a"]},
            {"name": "b", "function": "f", "needs": ["ok"]},
        ],
    }
)


@pytest.mark.parametrize("failing", ["a", "ok", "b"])
async def test_a_graph_that_failed_goes_on(failing: str) -> None:
    async def failed_then_continued(world: GraphWorld) -> None:
        await world.until_ended()
        await world.client.graphs.retry_failed(world.id)
        await world.until_ended({})

    ends = {failing: Slot.FAILED}
    outcome = await at_each_message(CHAIN, ends, {"ok": True}, failed_then_continued)
    assert (outcome["state"], outcome["completions"]) == ("completed", 2)
    assert outcome["jobs"].count("g_then_1") == outcome["jobs"].count("g_catch") == 1


async def test_a_graph_that_is_cancelled_at_once() -> None:
    async def cancelled(world: GraphWorld) -> None:
        await world.client.graphs.cancel(world.id, "wrong day")
        await world.until_ended()

    outcome = await at_each_message(CHAIN, {}, {}, cancelled)
    assert (outcome["state"], outcome["jobs"]) == ("cancelled", ["g_finally"])
