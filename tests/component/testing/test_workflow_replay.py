"""Recorded histories that are run through other code, before it is deployed."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.component.testing.test_workflow_versions import (
    NAME,
    approve,
    approved,
    approved_by_two,
    charge,
    charged_otherwise,
    deploy,
    shipped_first,
    suspended,
)

from penstock.config.load import check
from penstock.events.envelope import utc_now
from penstock.jobs import Client, WorkflowContext, registry
from penstock.testing import Bench


@pytest.fixture
def penstock() -> Iterator[Bench]:
    yield Bench()
    registry.REGISTRY.pop(NAME, None)


async def outcome(penstock: Bench, **code: Any) -> tuple[str, str]:
    deploy(**code)
    before = len(penstock.bus.stored(penstock.bus.subjects.events_stream, "penstock.>"))
    report = await penstock.client.workflows.replay()
    stored = penstock.bus.stored(penstock.bus.subjects.events_stream, "penstock.>")
    assert len(stored) == before  # it writes nothing
    [one] = report.workflows
    assert (report.unfit == ()) is one.stands
    return one.outcome, one.reason


async def test_code_that_fits_is_told_from_code_that_diverges(penstock: Bench) -> None:
    await suspended(penstock, deploy(v1=approved))
    assert await outcome(penstock, v1=approved) == ("fits", "")
    assert await outcome(penstock, v1=approved_by_two) == ("fits", "")
    assert await outcome(penstock, v1=shipped_first) == (
        "diverges",
        "recorded is job 'charge', the code does not call it",
    )
    diverges, reason = await outcome(penstock, v1=charged_otherwise)
    assert diverges == "diverges"
    assert "charge(" in reason and "the code calls job" in reason and "charge_again(" in reason


async def test_versions_decide_which_code_is_tried(penstock: Bench) -> None:
    await suspended(penstock, deploy(v1=approved))
    no_code, reason = await outcome(penstock, v2=approved)
    assert (no_code, "it is of version 1, here is version 2" in reason) == ("no-code", True)
    assert await outcome(penstock, v2=(approved, [1])) == ("fits", "")
    assert (await outcome(penstock, v2=(shipped_first, [1])))[0] == "diverges"
    assert (await outcome(penstock, v1=approved, v2=(shipped_first, [1])))[0] == "fits"


async def test_code_that_is_missing_is_named(penstock: Bench) -> None:
    await suspended(penstock, deploy(v1=approved))
    registry.REGISTRY.pop(NAME)
    [one] = (await penstock.client.workflows.replay()).workflows
    assert one.outcome == "no-code"
    assert f"no job is called '{NAME}'" in one.reason


async def test_another_signature_is_named(penstock: Bench) -> None:
    async def renamed(ctx: WorkflowContext, number: int) -> str:
        return str(await ctx.run(charge(order=number)))

    await suspended(penstock, deploy(v1=approved))
    no_code, reason = await outcome(penstock, v1=renamed)
    assert (no_code, "argument" in reason) == ("arguments", True)


async def test_code_that_raises_is_told_with_its_place(penstock: Bench) -> None:
    async def early(ctx: WorkflowContext, order: int) -> str:
        raise ValueError("not today")

    async def late(ctx: WorkflowContext, order: int) -> str:
        receipt = await ctx.run(charge(order=order))
        ctx.wait_signal("approved", timeout=-1)
        return str(receipt)

    await suspended(penstock, deploy(v1=approved))
    diverges, reason = await outcome(penstock, v1=early)
    assert diverges == "diverges"
    assert "the code raises ValueError (not today) where recorded is a suspension" in reason
    diverges, reason = await outcome(penstock, v1=late)
    assert diverges == "diverges"
    assert "raises WorkflowError" in reason


async def test_where_it_diverges_is_told(penstock: Bench) -> None:
    async def later(ctx: WorkflowContext, order: int) -> str:
        await ctx.run(charge(order=order))
        await ctx.wait_signal("agreed")
        return ""

    await suspended(penstock, deploy(v1=approved))
    deploy(v1=later)
    [one] = (await penstock.client.workflows.replay()).workflows
    assert (one.entry, one.entries) == (2, 2)
    assert one.reason == "recorded is signal 'approved', the code does not call it"


async def test_inline_steps_and_jobs_do_not_run(penstock: Bench) -> None:
    ran: list[int] = []

    async def inline(ctx: WorkflowContext, order: int) -> None:
        await ctx.step("note", ran.append, order)
        await ctx.wait_signal("approved")
        await ctx.step("again", ran.append, order)

    await suspended(penstock, deploy(v1=inline))
    assert ran == [7]
    assert await outcome(penstock, v1=inline) == ("fits", "")
    assert ran == [7]


async def test_only_living_workflows_are_tried_and_of_the_functions_and_time_given(
    penstock: Bench,
) -> None:
    kind = deploy(v1=approved)
    ended, living = await suspended(penstock, kind), await suspended(penstock, kind)
    await approve(penstock, ended)
    seen: list[tuple[int, int]] = []
    report = await penstock.client.workflows.replay(
        [NAME], progress=lambda done, total: seen.append((done, total))
    )
    assert [one.id for one in report.workflows] == [living]
    assert seen[-1] == (2, 2)
    assert not (await penstock.client.workflows.replay(["another"])).workflows
    later = utc_now() + timedelta(hours=1)
    assert not (await penstock.client.workflows.replay(since=later)).workflows
    earlier = utc_now() - timedelta(hours=1)
    assert len((await penstock.client.workflows.replay(since=earlier)).workflows) == 1


async def test_a_blocked_workflow_is_tried_too(penstock: Bench) -> None:
    workflow_id = await suspended(penstock, deploy(v1=approved))
    deploy(v1=shipped_first)
    await approve(penstock, workflow_id)
    assert (await outcome(penstock, v1=approved))[0] == "fits"
    await penstock.client.workflows.fix(workflow_id, forget=["charge", "approved"])
    assert (await outcome(penstock, v1=shipped_first))[0] == "fits"  # as it was fixed


async def test_a_sealed_workflow_is_tried_where_its_key_is(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.touch(mode=0o600)
    keys.write_text(f"first {base64.b64encode(bytes(32)).decode()}\n")
    bench = Bench(check({"encryption": {"key_file": str(keys), "every_job": True}}))
    try:
        await suspended(bench, deploy(v1=approved))
        [one] = (await bench.client.workflows.replay()).workflows
        assert one.outcome == "fits"
        deploy(v1=shipped_first)
        [one] = (await bench.client.workflows.replay()).workflows
        assert one.outcome == "diverges"
        without_key = Client.over(bench.bus.client(), check({}))
        report = await without_key.workflows.replay()
        assert [one.outcome for one in report.workflows] == ["sealed"]
        assert "'first'" in report.workflows[0].reason
        assert report.unfit == ()
    finally:
        registry.REGISTRY.pop(NAME, None)
