"""Workflows as steps of others: their steps take the step's place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.config import Settings
from penstock.config.load import check
from penstock.jobs import BadGraph, NotFound, job, registry
from penstock.jobs.workflows.declared import nesting, reading
from penstock.jobs.workflows.declared.definition import Definition
from penstock.jobs.workflows.graph_record import GraphRecord, GraphState
from penstock.testing import Bench

RAN: list[str] = []


@job(name="nested.work", queue="orders", tries=1)
def work(name: str, value: Any = None) -> Any:
    RAN.append(name if value is None else f"{name}({value})")
    if name.startswith("broken"):
        raise ValueError(name)
    return {"of": name, "value": value}


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    RAN.clear()
    registry.REGISTRY[work.name] = work
    yield
    registry.REGISTRY.pop(work.name, None)


@pytest.fixture
def penstock_settings() -> Settings:
    return check({"pools": {"orders": {"kind": "group", "queues": ["orders", "slow"]}}})


def call(name: str, *needs: str, **fields: Any) -> dict[str, Any]:
    return {
        "name": name, "function": "nested.work", "arguments": {"name": name}, "needs": needs,
        **fields,
    }  # fmt: skip


def definition(name: str, *steps: dict[str, Any], **fields: Any) -> Definition:
    return reading.from_values({"name": name, "steps": list(steps), **fields})


INVOICING = definition(
    "invoicing",
    call("sum", takes={"value": "context.total"}, sets={"total": "result.value"}),
    call("rebate", "sum", when="context.total > 100"),
    call("send", "rebate", takes={"value": "context.gateway"}),
    required=["total"],
    context={"gateway": "post"},
    returns={"sent": "results.send.value", "total": "context.total"},
)
ORDERS = definition(
    "orders",
    call("check", takes={"value": "context.n"}),
    {
        "name": "invoice",
        "workflow": "invoicing",
        "needs": ["check"],
        "queue": "slow",
        "when": "results.check.value > 0",
        "takes": {"total": "results.check.value"},
        "sets": {"how": "result.sent"},
    },
    call("ship", "invoice", takes={"value": "results.invoice.total"}),
    call("note", "ship", takes={"value": "context.how"}),
    required=["n"],
    context={"how": "not at all"},
)


async def run(
    penstock: Bench, outer: Definition, *inner: Definition, **context: Any
) -> GraphRecord:
    graph = await penstock.client.definitions.run(outer, context, inner=inner)
    await penstock.run_pending()
    return await penstock.client.graphs.show(graph)


@pytest.mark.parametrize(
    ("n", "ran"),
    [
        (9, ["check(9)", "sum(9)", "send(post)", "ship(9)", "note(post)"]),
        (900, ["check(900)", "sum(900)", "rebate", "send(post)", "ship(900)", "note(post)"]),
        (0, ["check(0)", "ship", "note(not at all)"]),
    ],
)
async def test_it_is_given_a_context_and_returns_a_result(
    penstock: Bench, n: int, ran: list[str]
) -> None:
    record = await run(penstock, ORDERS, INVOICING, n=n)
    assert (record.state, RAN) == (GraphState.COMPLETED, ran)
    if n:
        view = await penstock.client.graphs.step(record.id, "invoice/sum")
        assert view.record.queue == "slow"


async def test_an_instance_keeps_the_inner_definition_of_its_start(penstock: Bench) -> None:
    definitions = penstock.client.definitions
    with pytest.raises(NotFound, match="no workflow 'invoicing' is defined"):
        await definitions.define(ORDERS)
    await definitions.define(INVOICING)
    await definitions.define(ORDERS)
    graph = await definitions.run("orders", {"n": 1})
    other = definition(
        "invoicing", call("other"), required=["total"], version=2,
        returns={"sent": "results.other.of", "total": "context.total"},
    )  # fmt: skip
    await definitions.define(other)
    await penstock.run_pending()
    assert (await penstock.client.graphs.show(graph)).state is GraphState.COMPLETED
    assert RAN == ["check(1)", "sum(1)", "send(post)", "ship(1)", "note(post)"]
    RAN.clear()
    await definitions.run("orders", {"n": 1})
    await penstock.run_pending()
    assert RAN == ["check(1)", "other", "ship(1)", "note(other)"]


async def test_its_failure_is_that_of_the_step(penstock: Bench) -> None:
    broken = definition("invoicing", call("broken"), call("after", "broken"), required=["total"],
                        context={"gateway": ""})  # fmt: skip
    outer = definition(
        "orders",
        {"name": "invoice", "workflow": "invoicing", "arguments": {"total": 1}},
        call("ship", "invoice"),
        call("alarm", "invoice", rule="any_failed"),
    )
    record = await run(penstock, outer, broken)
    assert (record.state, record.failed_step) == (GraphState.FAILED, "invoice/broken")
    assert record.reason.endswith("can no longer run: invoice/broken → invoice → ship")
    assert RAN == ["broken", "alarm"]


async def test_a_failure_in_it_that_may_be(penstock: Bench) -> None:
    inner = definition("inner", call("broken", may_fail=True), call("fine"))
    outer = definition("outer", {"name": "part", "workflow": "inner"}, call("ship", "part"))
    record = await run(penstock, outer, inner)
    assert (record.state, sorted(RAN)) == (GraphState.COMPLETED, ["broken", "fine", "ship"])
    RAN.clear()
    strict = definition("inner", call("broken"), call("fine"))
    soft = {"name": "part", "workflow": "inner", "may_fail": True}
    alarm = call("alarm", "part", rule="any_failed")
    record = await run(penstock, definition("outer", soft, alarm), strict)
    assert (record.state, sorted(RAN)) == (GraphState.COMPLETED, ["alarm", "broken", "fine"])


@pytest.mark.parametrize("rule", ["all_done", "none_failed", "any_failed", "all_success"])
async def test_nothing_in_it_runs_if_it_is_skipped_or_blocked(penstock: Bench, rule: str) -> None:
    inner = definition("inner", call("a"), call("b", "a", rule=rule), call("c", "b", rule=rule))
    skipped = definition(
        "outer", call("first"),
        {"name": "part", "workflow": "inner", "needs": ["first"], "when": "context.n > 1"},
        call("last", "part"), context={"n": 1},
    )  # fmt: skip
    record = await run(penstock, skipped, inner)
    assert (record.state, RAN) == (GraphState.COMPLETED, ["first", "last"])
    RAN.clear()
    blocked = definition(
        "outer", call("broken"), {"name": "part", "workflow": "inner", "needs": ["broken"]}
    )
    assert (await run(penstock, blocked, inner)).state is GraphState.FAILED
    assert RAN == ["broken"]


async def test_what_it_did_is_undone_with_the_whole(penstock: Bench) -> None:
    undo = {"function": "nested.work", "arguments": {"name": "undo a"}}
    inner = definition(
        "inner", call("a", compensate=undo), call("b", "a"), returns={"x": "results.b.of"}
    )
    outer = {
        "function": "nested.work", "arguments": {"name": "undo part"},
        "takes": {"value": "results.part.x"},
    }  # fmt: skip
    whole = definition(
        "outer", {"name": "part", "workflow": "inner", "compensate": outer}, call("broken", "part")
    )
    assert (await run(penstock, whole, inner)).state is GraphState.FAILED
    assert RAN == ["a", "b", "broken", "undo part(b)", "undo a"]


async def test_waits_and_branches_in_it_in_two_levels(penstock: Bench) -> None:
    innermost = definition(
        "innermost",
        {"name": "ok", "wait": {}},
        {
            "name": "way", "needs": ["ok"],
            "branch": {
                "on": "results.ok",
                "cases": {"a": {"function": "nested.work", "arguments": {"name": "way a"}}},
                "otherwise": {"function": "nested.work", "takes": {"name": "context.name"}},
            },
        },
        required=["name"],
        returns={"of": "results.way.of"},
    )  # fmt: skip
    middle = definition(
        "middle",
        {"name": "deep", "workflow": "innermost", "takes": {"name": "context.name"}},
        context={"name": "nobody"},
        returns={"of": "results.deep.of"},
    )
    outer = definition(
        "outer",
        {"name": "one", "workflow": "middle"},
        {"name": "two", "workflow": "middle", "arguments": {"name": "other"}},
        call("end", "one", "two", takes={"value": "results.two.of"}),
    )
    graph = await penstock.client.definitions.run(outer, inner=[middle, innermost])
    await penstock.run_pending()
    await penstock.client.graphs.signal(graph, "one/deep/ok", "a")
    await penstock.client.graphs.signal(graph, "two/deep/ok", "b")
    await penstock.run_pending()
    assert (await penstock.client.graphs.show(graph)).state is GraphState.COMPLETED
    assert sorted(RAN[:2]) == ["other", "way a"] and RAN[2:] == ["end(other)"]


# --- what is refused ------------------------------------------------------------------------------
def inner_step(**fields: Any) -> dict[str, Any]:
    return {"name": "part", "workflow": "inner", **fields}


DEEP = "not " * 7 + "(context.k == 1)"


@pytest.mark.parametrize(
    ("inner", "step", "message"),
    [
        (definition("inner", {"name": "p", "workflow": "outer"}), inner_step(),
         "step 'p': workflows contain each other: outer → inner → outer"),
        (definition("inner", {"name": "p", "workflow": "inner"}), inner_step(),
         "workflows contain each other: inner → inner"),
        (INVOICING, inner_step(workflow="invoicing"), "requires a value of 'total'"),
        (INVOICING, inner_step(workflow="invoicing", arguments={"total": 1, "totl": 2}),
         "gives 'totl' to workflow 'invoicing', whose context has no such key; it has gateway"),
        (definition("inner", call("a", when=DEEP), context={"k": 1}), inner_step(), "8 deep"),
        (definition("inner", *(call(f"s{n}") for n in range(999))), inner_step(),
         "more than 1000 steps"),
    ],
)  # fmt: skip
def test_what_cannot_be_nested(inner: Definition, step: dict[str, Any], message: str) -> None:
    outer = definition("outer", step)
    lookup = nesting.among({"outer": outer, inner.name: inner})
    with pytest.raises(BadGraph, match=message):
        nesting.spelled_out(outer, lookup)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"function": "f"}, "has function and workflow; expected one of them"),
        ({"tries": 3}, "is a workflow; tries would have no effect"),
        ({"takes": {"x": "results.absent"}}, "'absent' is no step"),
        (
            {"arguments": {"x": 1}, "takes": {"x": "context.k"}},
            "the argument 'x' of inner twice",
        ),
    ],
)
def test_a_step_that_is_a_workflow_is_checked(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadGraph, match=message):
        definition("outer", inner_step(**fields), context={"k": 1})


def test_names_that_meet_are_refused() -> None:
    outer = definition("outer", inner_step(), call("part/a"))
    with pytest.raises(BadGraph, match="2 steps have the name 'part/a'"):
        nesting.spelled_out(outer, nesting.among({"inner": definition("inner", call("a"))}))


def test_a_thousandfold_nesting_ends_at_once() -> None:
    levels = {
        f"w{n}": definition(
            f"w{n}", *({"name": f"s{i}", "workflow": f"w{n + 1}"} for i in range(30))
        )
        for n in range(7)
    }
    levels["w7"] = definition("w30", call("a"))
    with pytest.raises(BadGraph, match="more than 1000 steps"):
        nesting.spelled_out(levels["w0"], nesting.among(levels))


def test_workflows_are_nested_eight_levels_deep() -> None:
    levels = {
        f"w{n}": definition(f"w{n}", {"name": "s", "workflow": f"w{n + 1}"}) for n in range(8)
    }
    levels["w8"] = definition("w8", call("a"))
    assert len(nesting.spelled_out(levels["w1"], nesting.among(levels)).steps) == 15
    with pytest.raises(BadGraph, match=r"nested more than 8 levels deep: w0 → w1 → .* → w8"):
        nesting.spelled_out(levels["w0"], nesting.among(levels))


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        (
            {"context": {"k": "x" * 60_000}},
            "contexts of its inner workflows have more than 256,000",
        ),
        ({"description": "x" * 200_000}, "each as often as it is a step, have more than 4,000,000"),
    ],
)
def test_what_inner_workflows_hold_is_counted_as_often_as_they_are_steps(
    inner: dict[str, Any], message: str
) -> None:
    steps = [{"name": f"s{n}", "workflow": "inner"} for n in range(21)]
    lookup = nesting.among({"inner": definition("inner", call("a"), **inner)})
    with pytest.raises(BadGraph, match=message):
        nesting.spelled_out(definition("outer", *steps), lookup)


async def test_a_join_may_gather_values(penstock: Bench) -> None:
    steps = [
        call("a"),
        {"name": "both", "needs": ["a"], "takes": {"of": "results.a.of", "n": "context.n"},
         "sets": {"n": "result.of"}},
        call("b", "both", takes={"value": "results.both"}),
        call("c", "both", takes={"value": "context.n"}, when="results.both.n == 1"),
    ]  # fmt: skip
    record = await run(penstock, definition("w", *steps, context={"n": 1}))
    assert record.state is GraphState.COMPLETED
    assert sorted(RAN) == ["a", "b({'of': 'a', 'n': 1})", "c(a)"]
