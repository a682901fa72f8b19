"""Inboxes of workflows that hold more than they may, or than anybody would send."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from penstock.bus.protocol import Outgoing, Stored, broker_time
from penstock.events.envelope import encode
from penstock.events.workflow import SignalReceived
from penstock.jobs import JobRefused, State, WorkflowContext, job, job_log, workflow
from penstock.jobs.workflows import signal_sending
from penstock.jobs.workflows.coded import consumed_signals
from penstock.orchestrator.workflows.suspended.suspended_workflows import SuspendedWorkflows
from penstock.testing import Bench
from penstock.testing.memory.bus import MemoryBus
from penstock.views.workflow_board import workflow_detail

MOST = 20


@pytest.fixture
def penstock() -> Bench:
    return Bench()


@pytest.fixture
def small_inboxes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_log, "MAX_INBOX_SIGNALS", MOST)
    monkeypatch.setattr(signal_sending, "_SURELY_FIT", 0)


@workflow()
async def approved(ctx: WorkflowContext) -> bool:
    return await ctx.wait_signal("approved", bool)


@workflow()
async def sums(ctx: WorkflowContext, left: int, generations: int = 0, total: int = 0) -> int:
    for _ in range(left):
        total += await ctx.wait_signal("add", int)
    if generations:
        await ctx.continue_as_new(sums(left=left, generations=generations - 1, total=total))
    return total


@job(queue="stock")
def reserve(order: int) -> int:
    return order


@workflow()
async def broad(ctx: WorkflowContext, steps: int) -> None:
    await ctx.gather(
        ctx.wait_signal("approved", bool), *(reserve(order=order) for order in range(steps))
    )


def forged(bench: Bench, workflow_id: str, signal: str, value: Any = None) -> Outgoing:
    """What a key that may signal stores without asking."""
    body = msgspec.msgpack.encode(value)
    event = SignalReceived(workflow_id=workflow_id, signal=signal, value=body)
    return Outgoing(bench.bus.subjects.event(event), encode(event))


async def flood(bench: Bench, workflow_id: str, number: int, signal: str = "noise") -> None:
    await bench.bus.append_many([forged(bench, workflow_id, signal)] * number)


class Reads:
    """Counts what all connections read of inboxes, and how often they read anything."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.signals = self.requests = 0
        history, count, last = MemoryBus.history, MemoryBus.count, MemoryBus.last

        async def counted_history(bus: MemoryBus, *args: Any, **terms: Any) -> list[Stored]:
            page = await history(bus, *args, **terms)
            self.requests += 1
            self.signals += sum(one.subject.endswith("SignalReceived") for one in page)
            return page

        async def counted_count(bus: MemoryBus, *args: Any) -> dict[str, int]:
            self.requests += 1
            return await count(bus, *args)

        async def counted_last(bus: MemoryBus, *args: Any) -> Stored | None:
            self.requests += 1
            return await last(bus, *args)

        monkeypatch.setattr(MemoryBus, "history", counted_history)
        monkeypatch.setattr(MemoryBus, "count", counted_count)
        monkeypatch.setattr(MemoryBus, "last", counted_last)


@asynccontextmanager
async def following(bench: Bench) -> AsyncIterator[SuspendedWorkflows]:
    """The orchestrator's part that wakes workflows, which has seen all that is stored."""
    suspended = SuspendedWorkflows(bench.bus, bench.bus.subjects, bench.client)
    see_all(bench, suspended)
    await suspended.round(bench.bus.now())
    yield suspended


def see_all(bench: Bench, suspended: SuspendedWorkflows) -> None:
    stored: Sequence[Stored] = bench.bus.stored(bench.bus.subjects.events_stream, ">")
    for message in sorted(stored, key=lambda one: one.sequence):
        suspended.see(message)


def woken(bench: Bench) -> int:
    subjects = bench.bus.subjects
    return len(bench.bus.stored(subjects.jobs_stream, subjects.queue("workflows")))


@pytest.mark.usefixtures("small_inboxes")
async def test_a_signal_beyond_what_an_inbox_holds_is_refused_and_shown(penstock: Bench) -> None:
    client = penstock.client
    workflow_id = await client.dispatch(approved())
    for _ in range(MOST):
        await client.workflows.signal(workflow_id, "noise")
    await penstock.run_pending()
    with pytest.raises(JobRefused, match=f"its inbox is full, {MOST} signals are not consumed"):
        await client.workflows.signal(workflow_id, "approved", True)
    view = await client.workflows.get(workflow_id)
    why = " ".join(workflow_detail(view, broker_time(penstock.bus)).why)
    assert f"Its inbox is full: {MOST} signals not consumed." in why


@pytest.mark.usefixtures("small_inboxes")
async def test_a_workflow_that_consumes_what_it_is_sent_has_room_for_ever(penstock: Bench) -> None:
    client = penstock.client
    workflow_id = await client.dispatch(sums(left=MOST, generations=2))
    for number in range(3 * MOST):
        await client.workflows.signal(workflow_id, "add", number)
        await penstock.run_pending()
    assert (await client.job(workflow_id)).result == sum(range(3 * MOST))


@pytest.mark.usefixtures("small_inboxes")
async def test_a_signal_that_is_never_consumed_takes_one_place_only(penstock: Bench) -> None:
    client = penstock.client
    workflow_id = await client.dispatch(sums(left=MOST, generations=1))
    await client.workflows.signal(workflow_id, "misspelt", 1)
    for number in range(2 * MOST):
        await client.workflows.signal(workflow_id, "add", number)
        await penstock.run_pending()
    assert (await client.job(workflow_id)).result == sum(range(2 * MOST))


@pytest.mark.usefixtures("small_inboxes")
async def test_of_a_flood_only_so_much_is_read(
    penstock: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given 50 times as many signals as an inbox holds, stored past the client; then each reading
    ends after what it may hold, and a page."""
    client = penstock.client
    workflow_id = await client.dispatch(approved())
    await client.workflows.signal(workflow_id, "approved", True)
    await flood(penstock, workflow_id, 50 * MOST)
    monkeypatch.setattr("penstock.jobs.event_store.event_log._PAGE", MOST)
    reads = Reads(monkeypatch)
    log = job_log.JobLog(penstock.bus, penstock.bus.subjects)
    events, is_full = await log.inbox(workflow_id, consumed_signals.ConsumedSignals())
    assert (len(events), is_full, reads.signals) == (MOST, True, MOST)
    await penstock.run_pending()
    assert (await client.job(workflow_id)).result is True


@pytest.mark.usefixtures("small_inboxes")
async def test_a_size_beyond_the_bound_is_not_read(
    penstock: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_log, "MAX_INBOX_BYTES", 5_000)
    monkeypatch.setattr("penstock.jobs.event_store.event_log._PAGE", 1)
    workflow_id = await penstock.client.dispatch(approved())
    await penstock.bus.append_many([forged(penstock, workflow_id, "noise", "x" * 2_000)] * 9)
    log = job_log.JobLog(penstock.bus, penstock.bus.subjects)
    events, is_full = await log.inbox(workflow_id, consumed_signals.ConsumedSignals())
    assert (len(events), is_full) == (2, True)


async def test_what_was_consumed_is_not_read_again(
    penstock: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = penstock.client
    workflow_id = await client.dispatch(sums(left=50))
    for number in range(40):
        await client.workflows.signal(workflow_id, "add", number)
    await penstock.run_pending()
    reads = Reads(monkeypatch)
    for number in range(40, 50):
        await client.workflows.signal(workflow_id, "add", number)
        await penstock.run_pending()
    assert reads.signals < 10 * 5
    monkeypatch.undo()
    assert (await client.job(workflow_id)).result == sum(range(50))


@pytest.mark.parametrize("generations", [0, 1])
async def test_the_id_of_a_signal_counts_once_also_behind_the_mark(
    penstock: Bench, generations: int
) -> None:
    client = penstock.client
    workflow_id = await client.dispatch(sums(left=2, generations=generations))
    ids = [f"order-{number}" for number in range(2 * (generations + 1))]
    for value, signal_id in enumerate(ids, 1):
        for _ in range(3):
            await client.workflows.signal(workflow_id, "add", value, signal_id=signal_id)
            await penstock.run_pending()
            if (await client.job(workflow_id)).state.ended:
                break
    expected = sum(range(1, len(ids) + 1))
    assert (await client.job(workflow_id)).result == expected


async def test_signals_that_nothing_waits_for_wake_nobody_and_are_not_read(
    penstock: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow_id = await penstock.client.dispatch(approved())
    await penstock.run_pending()
    async with following(penstock) as suspended:
        await flood(penstock, workflow_id, 1_000)
        reads = Reads(monkeypatch)
        see_all(penstock, suspended)
        await suspended.round(penstock.bus.now())
        assert (reads.requests, woken(penstock)) == (0, 0)
        await penstock.client.workflows.signal(workflow_id, "approved", True)
        see_all(penstock, suspended)
        await suspended.round(penstock.bus.now())
        assert woken(penstock) == 1


async def test_a_large_inbox_is_read_once_a_second(
    penstock: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given signals of one id, of the awaited name, of which each is a reason to look."""
    workflow_id = await penstock.client.dispatch(sums(left=2))
    await penstock.client.workflows.signal(workflow_id, "add", 1, signal_id="once")
    await penstock.run_pending()
    again = forged(penstock, workflow_id, "add", 1)
    event = SignalReceived(workflow_id=workflow_id, signal="add", signal_id="once")
    again = Outgoing(again.subject, encode(event))
    async with following(penstock) as suspended:
        await penstock.bus.append_many([again] * 300)
        see_all(penstock, suspended)
        await suspended.round(now := penstock.bus.now())
        reads = Reads(monkeypatch)
        for tenth in range(10):
            await penstock.bus.append(again)
            see_all(penstock, suspended)
            await suspended.round(now + tenth / 10)
        assert reads.signals == 0
        await suspended.round(now + 1.1)
        assert reads.signals == 310
        assert woken(penstock) == 0
        await penstock.client.workflows.signal(workflow_id, "add", 2)
        see_all(penstock, suspended)
        await suspended.round(now + 1.2)
        assert woken(penstock) == 0
        await suspended.round(now + 2.2)
        assert woken(penstock) == 1


async def test_sending_a_signal_costs_the_same_however_long_the_workflow_is(
    penstock: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow_id = await penstock.client.dispatch(broad(steps=200))
    await penstock.run_pending()
    reads = Reads(monkeypatch)
    await penstock.client.workflows.signal(workflow_id, "approved", True)
    assert reads.requests <= 1
    monkeypatch.undo()
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.COMPLETED
    with pytest.raises(JobRefused, match="takes no signal: it is completed"):
        await penstock.client.workflows.signal(workflow_id, "approved", True)
