"""Results of steps that the code, as it was deployed since, declares to be of another type."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import pytest
from tests.component.testing.test_workflow_versions import NAME, deploy, offer, suspended

from penstock.jobs import State, WorkflowContext, WrongResult, job, registry
from penstock.testing import Bench


class Receipt(msgspec.Struct):
    number: int


class PaidReceipt(msgspec.Struct):
    number: int
    paid_at: str


@job(queue="cards", name="tests.changed.charge")
def charge(order: int) -> Receipt:
    return Receipt(number=order)


@pytest.fixture
def penstock() -> Iterator[Bench]:
    yield Bench()
    registry.REGISTRY.pop(NAME, None)


@contextmanager
def declared(kind: Any) -> Iterator[None]:
    """As where the code of workflows imports a function that declares another type."""
    before, charge._result = charge._result, msgspec.msgpack.Decoder(kind)
    try:
        yield
    finally:
        charge._result = before


async def charged(ctx: WorkflowContext, order: int) -> int:
    receipt = await ctx.run(charge(order=order))
    await ctx.wait_signal("approved", int)
    await ctx.wait_signal("packed")
    return int(receipt.number)


async def suspended_twice(penstock: Bench) -> str:
    """One that has recorded a receipt and an approval, and waits on."""
    workflow_id = await suspended(penstock, deploy(v1=charged))
    await penstock.client.workflows.signal(workflow_id, "approved", 1)
    await penstock.run_pending()
    await penstock.client.workflows.signal(workflow_id, "packed")
    return workflow_id


async def test_a_recorded_result_of_another_type_blocks_a_workflow(penstock: Bench) -> None:
    workflow_id = await suspended_twice(penstock)
    with declared(PaidReceipt):
        [replayed] = (await penstock.client.workflows.replay()).workflows
        view = await offer(penstock, workflow_id)
    assert (replayed.outcome, replayed.entry) == ("diverges", 2)
    assert view.state is State.SUSPENDED
    for reason in (replayed.reason, view.blocked):
        assert "recorded under 'charge' is a result of type object with fields number" in reason
        assert "tests.changed.charge declares the result PaidReceipt" in reason
    assert (await offer(penstock, workflow_id)).job.result == 7  # by code that fits again


async def test_a_result_that_was_not_taken_note_of_yet_blocks_too(penstock: Bench) -> None:
    async def beside(ctx: WorkflowContext, order: int) -> int:
        receipt, _ = await ctx.gather(charge(order=order), ctx.wait_signal("approved"))
        return int(receipt.number)

    workflow_id = await penstock.client.dispatch(deploy(v1=beside)(order=7))
    await penstock.run_pending()
    with declared(PaidReceipt):
        report = await penstock.client.workflows.replay()
        await penstock.client.workflows.signal(workflow_id, "approved")
        view = await offer(penstock, workflow_id)
    [replayed] = report.workflows
    assert (replayed.outcome, replayed.stands) == ("diverges", False)
    assert view.state is State.SUSPENDED
    for reason in (replayed.reason, view.blocked):
        assert "recorded under 'gather/charge'" in reason
        assert "declares the result PaidReceipt" in reason
    assert (await offer(penstock, workflow_id)).job.result == 7


async def test_a_consumed_signal_of_another_type_blocks_too(penstock: Bench) -> None:
    async def approved_in_words(ctx: WorkflowContext, order: int) -> int:
        receipt = await ctx.run(charge(order=order))
        await ctx.wait_signal("approved", str)
        await ctx.wait_signal("packed")
        return int(receipt.number)

    workflow_id = await suspended_twice(penstock)
    deploy(v1=approved_in_words)
    view = await offer(penstock, workflow_id)
    assert "recorded under 'approved' is a signal of type int" in view.blocked
    assert "it expects str" in view.blocked


async def test_an_accepted_record_of_another_type_is_an_error_at_its_await(
    penstock: Bench,
) -> None:
    async def careful(ctx: WorkflowContext, order: int) -> int:
        number = -1
        with suppress(WrongResult):
            number = (await ctx.run(charge(order=order))).number
        await ctx.wait_signal("approved", int)
        await ctx.wait_signal("packed")
        return number

    workflow_id = await suspended_twice(penstock)
    deploy(v1=careful)
    with declared(PaidReceipt):
        assert "declares the result PaidReceipt" in (await offer(penstock, workflow_id)).blocked
        await penstock.client.workflows.fix(workflow_id, accept=True)
        assert (await offer(penstock, workflow_id)).job.result == -1
