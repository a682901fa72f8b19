"""Inline steps and maps that new code calls with other arguments than were recorded."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from tests.component.testing.test_workflow_versions import NAME, charge, deploy, offer

from penstock.events.workflow import StepRecorded, StepsScheduled
from penstock.jobs import State, WorkflowContext, registry
from penstock.jobs.workflows.coded import results
from penstock.jobs.workflows.coded.commands import RunInline
from penstock.testing import Bench


class Order(msgspec.Struct):
    number: int


@pytest.fixture
def penstock() -> Iterator[Bench]:
    yield Bench()
    registry.REGISTRY.pop(NAME, None)


def rate(*_: Any) -> int:
    return 2


def with_rate(*arguments: Any) -> Any:
    async def rated(ctx: WorkflowContext, order: int) -> int:
        found = await ctx.step("rate", rate, *arguments)
        await ctx.wait_signal("go")
        return int(found)

    return rated


def mapped(*orders: int) -> Any:
    async def charged(ctx: WorkflowContext, order: int) -> int:
        done = await ctx.map([charge(order=number) for number in orders])
        await ctx.wait_signal("go")
        return int(done.completed)

    return charged


async def waiting(penstock: Bench, code: Any) -> str:
    workflow_id = await penstock.client.dispatch(deploy(v1=code)(order=7))
    await penstock.run_pending()
    assert (await penstock.client.workflows.get(workflow_id)).waits_for[0].key == "go"
    await penstock.client.workflows.signal(workflow_id, "go")
    return str(workflow_id)


async def replayed(penstock: Bench) -> tuple[str, str]:
    [one] = (await penstock.client.workflows.replay()).workflows
    return one.outcome, one.reason


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (with_rate("EUR"), with_rate("USD"), "recorded is the inline step 'rate' (rate("),
        (mapped(1, 2), mapped(3, 4), "recorded under 'charge' is batch "),
        (mapped(1, 2), mapped(1, 2, 3), "recorded under 'charge' is batch "),
    ],
    ids=["inline", "first call", "number of calls"],
)
async def test_other_arguments_block_and_are_named(
    penstock: Bench, before: Any, after: Any, what: str
) -> None:
    workflow_id = await waiting(penstock, before)
    deploy(v1=after)
    outcome, reason = await replayed(penstock)
    assert outcome == "diverges"
    assert what in reason and "the code calls" in reason
    view = await offer(penstock, workflow_id)
    assert view.state is State.SUSPENDED
    assert reason in view.blocked
    await penstock.client.workflows.fix(workflow_id, accept=True)
    assert (await offer(penstock, workflow_id)).job.result == 2


async def test_what_an_earlier_release_recorded_is_not_compared(
    penstock: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(results, "argument_digest", lambda command, sealed: "")
        ids = [await waiting(penstock, with_rate("EUR")), await waiting(penstock, mapped(1, 2))]
    deploy(v1=with_rate("USD"))
    assert (await offer(penstock, ids[0])).job.result == 2
    deploy(v1=mapped(3, 4))
    assert (await offer(penstock, ids[1])).job.result == 2


def digest(*arguments: Any, sealed: bool = False) -> str:
    return results.argument_digest(RunInline("rate", rate, arguments), sealed)


def test_plain_values_have_a_digest_that_does_not_depend_on_their_order() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert digest({"a", "b", "c"}) == digest({"c", "b", "a"}) != ""
    assert digest({"a": 1, "b": [at]}) == digest({"b": [at], "a": 1}) != ""
    assert digest(Decimal("1.5"), None, b"x") != digest(Decimal("1.6"), None, b"x") != ""


def test_what_has_no_lasting_encoding_or_is_secret_has_no_digest() -> None:
    nested: list[Any] = []
    nested.append(nested)
    for value in (Order(number=1), [Order(number=1)], object(), rate, nested, 1 << 80):
        assert digest(value) == ""
    assert digest("EUR", sealed=True) == ""


async def test_a_step_that_changes_its_argument_is_recorded_as_it_was_called(
    penstock: Bench,
) -> None:
    async def appending(ctx: WorkflowContext, order: int) -> int:
        items: list[int] = []
        await ctx.step("append", items.append, order)
        await ctx.step("sort", list.sort, [3, 1, 2])
        await ctx.wait_signal("go")
        return order

    workflow_id = await waiting(penstock, appending)
    view = await offer(penstock, workflow_id)
    assert view.job.result == 7
    steps = [event for _, event in view.job.events if isinstance(event, StepRecorded)]
    assert all(event.inline.arguments for event in steps)


async def test_a_map_records_a_digest_of_its_calls(penstock: Bench) -> None:
    workflow_id = await waiting(penstock, mapped(1, 2))
    view = await penstock.client.workflows.get(workflow_id)
    [part] = [event for _, event in view.job.events if isinstance(event, StepsScheduled)]
    assert part.scheduled[0].arguments
