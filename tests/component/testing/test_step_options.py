"""Options that a workflow sets for one of its steps."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock.config.load import check
from penstock.jobs import Backoff, JobView, StepFailed, WorkflowContext, job, workflow
from penstock.jobs.errors import WorkflowError
from penstock.jobs.payloads import payload
from penstock.testing import Bench

TRIED: list[str] = []


@pytest.fixture
def bench() -> Bench:
    TRIED.clear()
    pools: dict[str, Any] = {
        "workflows": {"queues": ["workflows"]},
        "cards": {"kind": "group", "queues": ["cards", "express"], "priorities": True},
    }
    return Bench(check({"pools": pools}))


@job(queue="cards", tries=5, timeout_seconds=60.0, tags=["money"])
def charge(order: int) -> int:
    TRIED.append("charge")
    return order


@job(queue="cards", tries=5)
def refuse(order: int) -> int:
    TRIED.append("refuse")
    raise ValueError("declined")


async def step(bench: Bench, workflow_id: str, n: int = 0) -> JobView:
    return await bench.client.job(f"{workflow_id}_step_{n}")


@workflow()
async def with_options(ctx: WorkflowContext) -> int:
    charged = await ctx.run(
        charge(order=1),
        queue="express",
        priority="high",
        tags=["vip"],
        tries=2,
        timeout=timedelta(minutes=5),
        backoff=Backoff(first_seconds=3.0),
    )
    return int(charged)


async def test_a_step_has_its_own_queue_tags_tries_and_timeout(bench: Bench) -> None:
    workflow_id = await bench.client.dispatch(with_options())
    await bench.run_pending()
    assert (await bench.client.job(workflow_id)).result == 1
    record = (await step(bench, workflow_id)).record
    call = payload.decode(record.payload)
    assert (record.queue, record.tags, record.tries) == ("express--high", ("money", "vip"), 2)
    assert (call.tries, call.timeout_seconds, call.backoff.first_seconds) == (2, 300.0, 3.0)


async def test_the_tries_of_a_step_are_those_of_the_call(bench: Bench) -> None:
    @workflow(name="tests.options.tries")
    async def tried_twice(ctx: WorkflowContext) -> str:
        try:
            await ctx.run(refuse(order=1), tries=2)
        except StepFailed as error:
            return error.kind
        return ""

    workflow_id = await bench.client.dispatch(tried_twice())
    await bench.run_pending()
    assert (await bench.client.job(workflow_id)).result == "builtins.ValueError"
    assert TRIED == ["refuse", "refuse"]


async def test_a_delayed_step_starts_later_also_if_a_crash_left_it_out(bench: Bench) -> None:
    @workflow(name="tests.options.delayed")
    async def delayed(ctx: WorkflowContext) -> int:
        return int(await ctx.run(charge(order=1), delay=timedelta(hours=1)))

    for at, after in ((1, False), (2, True)):
        TRIED.clear()
        order = await bench.start(delayed())
        with bench.crashing(at=at, after=after):
            await bench.run_pending()
        await bench.advance(20)  # the orchestrator makes up for what is missing
        await bench.run_pending()
        assert TRIED == []
        assert (await step(bench, order.id)).state == "scheduled"
        await bench.advance(3_600)
        await bench.run_pending()
        assert (await bench.client.job(order.id)).result == 1


async def test_options_may_change_under_a_living_workflow(bench: Bench) -> None:
    @workflow(name="tests.options.changed")
    async def changed(ctx: WorkflowContext) -> int:
        charged = await ctx.run(charge(order=1))
        await ctx.wait_signal("go")
        return int(charged)

    order = await bench.start(changed())
    await order.run(until="go")

    async def again(ctx: WorkflowContext) -> int:
        charged = await ctx.run(charge(order=1), tries=7, queue="express", timeout=9)
        await ctx.wait_signal("go")
        return int(charged)

    changed.function = again
    await order.signal("go")
    await order.run()
    order.assert_completed(1)


OPTIONS: dict[str, Any] = {}


@workflow(tries=1)
async def refused(ctx: WorkflowContext) -> None:
    await ctx.run(charge(order=1), **OPTIONS)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"timeout": -1}, "a time of up to a year"),
        ({"timeout": "5m"}, "expected seconds"),
        ({"delay": timedelta(days=400)}, "a time of up to a year"),
        ({"tries": 0.5}, "a whole number"),
        ({"tries": -1}, "a whole number"),
        ({"queue": "a b"}, "queue"),
        ({"priority": "urgent"}, "one of high, normal, low"),
        ({"tags": "vip"}, "a list of texts"),
        ({"tags": [f"t{n}" for n in range(11)]}, "at most 10 tags"),
        ({"backoff": 5}, "expected a Backoff"),
    ],
)
async def test_an_option_that_cannot_be_is_named(
    bench: Bench, options: dict[str, Any], reason: str
) -> None:
    OPTIONS.clear()
    OPTIONS.update(options)
    order = await bench.start(refused())
    await order.run()
    error = order.view.job.error
    assert error is not None
    assert WorkflowError.__name__ in error.kind
    assert reason in error.message


async def test_a_lane_that_a_queue_lacks_is_named(bench: Bench) -> None:
    OPTIONS.clear()
    OPTIONS.update(queue="elsewhere", priority="high")
    order = await bench.start(refused())
    await order.run()
    assert order.view.job.error is not None
    assert "has no priorities" in order.view.job.error.message
