"""A restart knows the workflows that wait, however far back in the log they stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.waiting import eventually

from penstock.bus.protocol import BusUnavailable, Outgoing
from penstock.jobs import JobType, WorkflowContext, derived_ids, job, registry, workflow
from penstock.jobs.lifecycle import State
from penstock.orchestrator.workflows.suspended.long_waits import LongWaits
from penstock.orchestrator.workflows.suspended.suspended_workflows import SuspendedWorkflows
from penstock.testing import Bench


@job
def plain() -> None: ...


@workflow()
async def asked(ctx: WorkflowContext) -> list[Any]:
    return [await ctx.wait_signal("go", int) for _ in range(2)]


@workflow(timeout=3_600)
async def limited(ctx: WorkflowContext) -> Any:
    return await ctx.wait_signal("go", int)


@workflow()
async def broad(ctx: WorkflowContext) -> list[Any]:
    return await ctx.gather(*(ctx.wait_signal(f"go-{n}") for n in range(10)))


KINDS: list[JobType[Any, Any]] = [plain, asked, limited, broad]


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    registry.REGISTRY.update({each.name: each for each in KINDS})
    yield
    for each in KINDS:
        registry.REGISTRY.pop(each.name, None)


class Process:
    """What follows the suspended workflows in one orchestrator."""

    def __init__(self, bench: Bench) -> None:
        self._bench, subjects = bench, bench.bus.subjects
        self.suspended = SuspendedWorkflows(bench.bus, subjects, bench.client)
        self.waits = LongWaits(bench.bus, subjects, self.suspended, long_seconds=0.0)

    async def caught_up(self) -> None:
        last = (await self._bench.bus.extent(self._bench.bus.subjects.events_stream)).last
        await self._bench.bus.append(
            Outgoing(self._bench.bus.subjects.events("job", "probe", "JobCarried"), b"{}")
        )
        await eventually(lambda: self.suspended.position > last, 5.0, "the end of the log")

    async def keep(self) -> None:
        """Twice: only what the first one has seen is old enough for the second."""
        for _ in range(2):
            await self.caught_up()
            await self.waits.keep(leads=True, at_once=True)


@asynccontextmanager
async def process(bench: Bench) -> AsyncIterator[Process]:
    one = Process(bench)
    await one.waits.load()
    following = asyncio.create_task(one.suspended.follow())
    try:
        yield one
    finally:
        following.cancel()


def wake_ups(bench: Bench) -> int:
    subjects = bench.bus.subjects
    return len(bench.bus.stored(subjects.jobs_stream, subjects.queue("workflows")))


async def test_a_restart_reads_on_where_the_log_was_read_and_knows_what_waits(
    penstock: Bench,
) -> None:
    ids = [await penstock.client.dispatch(asked()) for _ in range(5)]
    await penstock.run_pending()
    async with process(penstock) as first:
        for _ in range(20):
            await penstock.client.dispatch(plain())
        await penstock.run_pending()
        await first.keep()
        read_to = first.suspended.position
    async with process(penstock) as second:
        assert second.suspended.position >= read_to - 1
        assert set(ids) == set(second.suspended.unfinished)
        await penstock.client.workflows.signal(ids[0], "go", 1)
        await second.caught_up()
        await second.suspended.round(penstock.bus.now())
        assert wake_ups(penstock) == 1
        await penstock.run_pending()
        await second.keep()
    async with process(penstock) as third:
        assert set(ids) == set(third.suspended.unfinished)
        assert third.suspended.unfinished[ids[0]].number == 2


async def test_a_restart_knows_which_of_them_take_much_to_read(penstock: Bench) -> None:
    """It reads few of these at the same time."""
    large, small = await penstock.client.dispatch(broad()), await penstock.client.dispatch(asked())
    await penstock.run_pending()
    async with process(penstock) as first:
        await first.keep()
        size = first.suspended.unfinished[large].size
    for _ in range(2):  # nothing of it was read in between
        async with process(penstock) as restarted:
            unfinished = restarted.suspended.unfinished
            assert unfinished[large].unread_bytes == size > 1_000
            assert unfinished[small].unread_bytes == 0
            await restarted.keep()


async def test_what_came_before_the_end_of_a_process_is_made_up_for_by_the_next(
    penstock: Bench,
) -> None:
    """Given a signal that was read, and its workflow was not woken."""
    workflow_id = await penstock.client.dispatch(asked())
    await penstock.run_pending()
    async with process(penstock) as first:
        await first.keep()
        await penstock.client.workflows.signal(workflow_id, "go", 1)
        await first.keep()
        assert not wake_ups(penstock)
    async with process(penstock) as second:
        await second.suspended.round(penstock.bus.now())
        assert wake_ups(penstock) == 1


async def test_the_timeout_of_a_workflow_outlives_the_process_that_saw_it_wait(
    penstock: Bench,
) -> None:
    workflow_id = await penstock.client.dispatch(limited())
    await penstock.run_pending()
    async with process(penstock) as first:
        await first.keep()
    async with process(penstock) as second:
        assert second.suspended.position > 0
        await second.suspended.round(penstock.bus.now())
        assert (await penstock.client.workflows.get(workflow_id)).cancel_by is None
        await second.suspended.round(penstock.bus.now() + 3_601.0)
    assert (await penstock.client.workflows.get(workflow_id)).cancel_by is not None


async def test_what_ended_is_forgotten(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(asked())
    await penstock.run_pending()
    async with process(penstock) as first:
        await first.keep()
        await penstock.client.workflows.cancel(workflow_id)
        await penstock.run_pending()
        assert (await penstock.client.job(workflow_id)).state is State.CANCELLED
        await first.keep()
    async with process(penstock) as second:
        assert not second.suspended.unfinished


@pytest.mark.parametrize("body", [b"", b"\x91\x90", b"[]"])
async def test_what_cannot_be_read_leads_back_to_the_beginning(
    penstock: Bench, body: bytes
) -> None:
    workflow_id = await penstock.client.dispatch(asked())
    await penstock.run_pending()
    async with process(penstock) as first:
        await first.keep()
    for name in range(256):
        await penstock.bus.append(
            Outgoing(penstock.bus.subjects.state("suspended", str(name)), body)
        )
    async with process(penstock) as second:
        await second.caught_up()
        assert workflow_id in second.suspended.unfinished


async def test_nobody_is_missed_wherever_the_storing_is_cut_off(penstock: Bench) -> None:
    """Shards come first, then the position: each prefix of that leads to all that wait."""
    ids = {await penstock.client.dispatch(asked()) for _ in range(3)}
    await penstock.run_pending()
    subjects = penstock.bus.subjects
    async with process(penstock) as first:
        await first.keep()
    ids |= {await penstock.client.dispatch(asked()) for _ in range(3)}
    await penstock.run_pending()
    before = await penstock.bus.last(subjects.state_stream, subjects.state("cursor", "suspended"))
    assert before is not None
    async with process(penstock) as second:
        await second.keep()
    await penstock.bus.append(Outgoing(before.subject, before.body))  # the later one was not stored
    async with process(penstock) as third:
        await third.caught_up()
        assert set(third.suspended.unfinished) == ids


@workflow()
async def working(ctx: WorkflowContext) -> None:
    await ctx.run(late())


@job(queue="paused")
def late() -> None: ...


@pytest.mark.parametrize("when", ["before", "after"])
async def test_steps_of_a_restored_one_that_is_cancelled_are_cancelled(
    penstock: Bench, when: str
) -> None:
    registry.REGISTRY.update({working.name: working, late.name: late})
    await penstock.client.pause_queue("paused")
    workflow_id = await penstock.client.dispatch(working())
    with pytest.raises(TimeoutError):
        await penstock.run_pending(0.5)
    async with process(penstock) as first:
        await first.keep()
        if when == "before":
            await penstock.client.cancel(workflow_id)
            await first.keep()
    async with process(penstock) as second:
        if when == "after":
            await penstock.client.cancel(workflow_id)
            await second.caught_up()
        await second.suspended.round(penstock.bus.now())
        step = await penstock.client.job(derived_ids.step_id(workflow_id, 0))
        assert step.state is State.CANCELLED


async def test_one_that_begins_to_store_takes_nothing_for_stored(penstock: Bench) -> None:
    """Given a position that another process stored, and workflows that it never put into shards."""
    ids = {await penstock.client.dispatch(asked()) for _ in range(3)}
    await penstock.run_pending()
    subjects = penstock.bus.subjects
    async with process(penstock) as standby:
        await standby.caught_up()
        await standby.waits.keep(leads=False, at_once=True)
        cut_off = CutOff(penstock.bus)
        standby.waits._bus = cut_off  # type: ignore[assignment]
        with pytest.raises(BusUnavailable):
            await standby.keep()
    [stored] = penstock.bus.stored(subjects.state_stream, subjects.state("cursor", "suspended"))
    assert msgspec.json.decode(stored.body)["sequence"] == standby.suspended.cursor()
    async with process(penstock) as third:
        await third.caught_up()
        assert set(third.suspended.unfinished) == ids


class CutOff:
    """A bus that stores single messages, and no shards."""

    def __init__(self, bus: Any) -> None:
        self._bus = bus

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def append_many(self, _: Any) -> list[Any]:
        raise BusUnavailable("cut off")
