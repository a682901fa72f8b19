"""Signals that nobody expects: of the wrong type, too large, to the wrong workflow."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock.bus.protocol import broker_time
from penstock.events.workflow_memo import MAX_SIGNAL_BYTES
from penstock.jobs import JobRefused, NotFound, State, WorkflowContext, job, workflow
from penstock.jobs.errors import AmbiguousId
from penstock.testing import Bench
from penstock.verifying.coded import check_workflow
from penstock.views.workflow_board import workflow_detail


@pytest.fixture
def penstock() -> Bench:
    return Bench()


@workflow()
async def approved(ctx: WorkflowContext) -> str:
    first = await ctx.wait_signal("approved", bool)
    count = await ctx.wait_signal("count", int, timeout=timedelta(hours=1), default=0)
    return f"{first} {count}"


async def test_a_value_of_another_type_is_passed_over_and_the_workflow_waits_on(
    penstock: Bench,
) -> None:
    workflow_id = await penstock.client.dispatch(approved())
    for value in ("yes", {"by": "ann"}):
        await penstock.client.workflows.signal(workflow_id, "approved", value)
    await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id)
    assert (view.state, view.job.error) == (State.SUSPENDED, None)
    assert [(one.signal, one.reason) for one in view.refused_signals] == [
        ("approved", "Expected `bool`, got `str`"),
        ("approved", "Expected `bool`, got `object`"),
    ]
    why = " ".join(workflow_detail(view, broker_time(penstock.bus)).why)
    assert (
        "Signal approved was sent with a value that does not fit (the last of 2): Expected `bool`, "
        "got `object`, and approved waits without end: 'penstock workflow signal"
    ) in why
    advances = view.advances
    await penstock.run_pending()
    assert (await penstock.client.workflows.get(workflow_id)).advances == advances
    await penstock.client.workflows.signal(workflow_id, "approved", True)
    await penstock.client.workflows.signal(workflow_id, "count", "many")
    await penstock.run_pending()
    await penstock.advance(timedelta(hours=1))
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == "True 0"


@pytest.mark.parametrize("together", [True, False])
async def test_one_that_is_passed_over_uses_up_no_id(penstock: Bench, together: bool) -> None:
    """Whoever may signal could keep out with it the one that is waited for."""
    workflow_id = await penstock.client.dispatch(approved())
    for name, values in {"approved": ["yes", True, False], "count": ["many", 3, 4]}.items():
        for value in values:
            await penstock.client.workflows.signal(workflow_id, name, value, signal_id=name)
            if not together:
                await penstock.run_pending()
            if (await penstock.client.job(workflow_id)).state.ended:
                break
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == "True 3"


async def test_the_first_that_fits_is_taken_of_several(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(approved())
    for value in ("yes", False, True):
        await penstock.client.workflows.signal(workflow_id, "approved", value)
    await penstock.client.workflows.signal(workflow_id, "count", 3)
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == "False 3"


@workflow()
async def two_types(ctx: WorkflowContext) -> list[Any]:
    values = await ctx.gather(ctx.wait_signal("go", int), ctx.wait_signal("go", str))
    await ctx.wait_signal("end", bool)
    return list(values)


async def test_a_value_goes_to_the_wait_that_it_fits(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(two_types())
    await penstock.client.workflows.signal(workflow_id, "end", True)
    for value in (2.5, "a", 1):
        await penstock.client.workflows.signal(workflow_id, "go", value)
        await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == [1, "a"]


async def test_signals_are_consumed_in_the_order_of_their_sending_whatever_waits(
    penstock: Bench,
) -> None:
    workflow_id = await penstock.client.dispatch(two_types())
    for value in ("a", 1):
        await penstock.client.workflows.signal(workflow_id, "go", value)
    await penstock.client.workflows.signal(workflow_id, "end", True)
    await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id)
    assert view.job.result == [1, "a"]
    history = [(sequence, event) for sequence, event in view.job.events]
    assert list(check_workflow(workflow_id, history, {})) == []


@pytest.mark.parametrize(
    ("name", "value", "signal_id", "reason"),
    [
        ("approved", "x" * MAX_SIGNAL_BYTES, "", f"a value of at most {MAX_SIGNAL_BYTES} bytes"),
        ("approved", object(), "", "its value cannot be sent"),
        ("approved", 2**70, "", "its value cannot be sent"),
        ("approved", "\ud800", "", "its value cannot be sent"),
        ("", True, "", "a name of 1 to 64 characters"),
        ("n" * 65, True, "", "a name of 1 to 64 characters"),
        ("approved", True, "i" * 65, "a signal_id of at most 64 characters"),
    ],
)
async def test_what_cannot_be_sent_is_refused_and_nothing_is_stored(
    penstock: Bench, name: str, value: object, signal_id: str, reason: str
) -> None:
    workflow_id = await penstock.client.dispatch(approved())
    subjects = penstock.bus.subjects
    with pytest.raises(JobRefused, match=reason):
        await penstock.client.workflows.signal(workflow_id, name, value, signal_id=signal_id)
    assert not penstock.bus.stored(subjects.events_stream, subjects.events("workflow"))


async def test_a_signal_to_what_takes_none_is_refused(penstock: Bench) -> None:
    workflows = penstock.client.workflows
    workflow_id = await penstock.client.dispatch(approved())
    await workflows.cancel(workflow_id)
    with pytest.raises(JobRefused, match="takes no signal: it is cancelled"):
        await workflows.signal(workflow_id, "approved", True)
    with pytest.raises(NotFound):
        await workflows.signal("there-is-none", "approved", True)


@job(queue="stock")
def pack(order: int) -> int:
    return order


@workflow()
async def packed(ctx: WorkflowContext) -> None:
    await ctx.gather(pack(order=1), pack(order=2))


async def test_the_beginning_of_an_id_stands_for_the_workflow_not_for_its_steps(
    penstock: Bench,
) -> None:
    one = await penstock.client.dispatch(packed(), job_id="0abc-one")
    await penstock.run_pending()
    assert await penstock.client.jobs.find_id("0abc") == one
    await penstock.client.dispatch(packed(), job_id="0abc-two")
    with pytest.raises(AmbiguousId, match="2 jobs have an id"):
        await penstock.client.jobs.find_id("0abc")


@workflow()
async def approved_and_rested(ctx: WorkflowContext) -> None:
    await ctx.gather(ctx.wait_signal("go", bool), ctx.wait_signal("go", bool), ctx.sleep(60))


async def test_what_was_sent_and_not_taken_note_of_is_shown(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(approved_and_rested())
    await penstock.run_pending()
    await penstock.client.workflows.signal(workflow_id, "go", True)
    view = await penstock.client.workflows.get(workflow_id)
    detail = workflow_detail(view, broker_time(penstock.bus))
    assert [(step.key, step.state) for step in detail.steps] == [
        ("gather/go", "sent"),
        ("gather/go#2", "waiting"),
        ("gather/sleep", "waiting"),
    ]
    why = " ".join(detail.why)
    assert "Signal go was sent; gather/go takes note of it when it goes on." in why
    assert "Signal go was not sent, and gather/go#2 waits without end" in why
