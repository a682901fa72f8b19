"""What the orchestrator remembers of suspended workflows has a bound, whoever stored events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from penstock.bus.protocol import Expect, Outgoing, Stored, broker_time
from penstock.events.envelope import encode
from penstock.events.job import JobDispatched, JobEvent, JobStarted
from penstock.events.workflow import WorkflowAdvanced
from penstock.events.workflow_memo import ScheduledStep, WaitGroup
from penstock.jobs import State, WorkflowContext, job, workflow
from penstock.orchestrator.workflows.suspended import followed_events
from penstock.orchestrator.workflows.suspended.suspended_workflows import SuspendedWorkflows
from penstock.testing import Bench

MOST_BYTES = 200_000


@pytest.fixture
def penstock() -> Bench:
    return Bench()


@pytest.fixture
def suspended(penstock: Bench) -> SuspendedWorkflows:
    """It compares nothing with the log for the lapse of time alone."""
    bus = penstock.bus
    return SuspendedWorkflows(
        bus, bus.subjects, penstock.client, after_seconds=1e6, remembered_bytes=MOST_BYTES
    )


@job(queue="stock")
def reserve(order: int) -> int:
    return order


@workflow()
async def approvals(ctx: WorkflowContext, number: int) -> int:
    return len(await ctx.gather(*(ctx.wait_signal(f"approved-{n}") for n in range(number))))


@workflow()
async def reserves(ctx: WorkflowContext, number: int) -> int:
    delay = timedelta(hours=1)
    orders = await ctx.gather(*(ctx.run(reserve(order=n), delay=delay) for n in range(number)))
    return len(orders)


@workflow()
async def restarts(ctx: WorkflowContext, number: int, again: bool = True) -> None:
    delay = timedelta(hours=1)
    await ctx.race(
        ctx.gather(*(ctx.run(reserve(order=n), delay=delay) for n in range(number))),
        ctx.wait_signal("again"),
    )
    if again:
        await ctx.continue_as_new(restarts(number=number, again=False))


async def forge(bench: Bench, name: str, steps: int) -> None:
    """A workflow that waits for so many signals, stored by a worker's key alone."""
    about: dict[str, Any] = {"job_id": name, "source": "evil", "function": approvals.name}
    scheduled = tuple(
        ScheduledStep(n=n, key=f"step-{n}", kind="signal", digest="never") for n in range(steps)
    )
    events: list[JobEvent] = [
        JobDispatched(**about, queue="workflows", payload=b"\x80"),
        JobStarted(**about, queue="workflows", attempt=1, host="h", worker="w"),
        WorkflowAdvanced(
            **about,
            queue="workflows",
            number=1,
            now=broker_time(bench.bus),
            scheduled=scheduled,
            wait=(WaitGroup(tuple(range(steps))),),
        ),
    ]
    subjects, last = bench.bus.subjects, 0
    for event in events:
        expect = Expect(last, subjects.job(name))
        last = await bench.bus.append(Outgoing(subjects.event(event), encode(event), {}, expect))


async def look(bench: Bench, suspended: SuspendedWorkflows) -> None:
    """The orchestrator reads on, and looks after what it must."""
    subjects = bench.bus.subjects
    stored: dict[int, Stored] = {}
    for pattern in followed_events.patterns(subjects, reads_ends=True):
        for message in bench.bus.stored(subjects.events_stream, pattern):
            stored[message.sequence] = message
    for sequence in sorted(stored):
        suspended.see(stored[sequence])
    await suspended.round(bench.bus.now())


async def flood(bench: Bench, suspended: SuspendedWorkflows) -> None:
    """Many forged workflows come that wait for much, and the orchestrator reads on."""
    for number in range(10):
        await forge(bench, f"forged-{number}", 200)
    await look(bench, suspended)


@contextmanager
def without_rounds() -> Iterator[None]:
    """The workers run on, but no orchestrator looks after what it must."""

    async def nothing(_: SuspendedWorkflows, now: float) -> None:
        """Instead of a round."""

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SuspendedWorkflows, "round", nothing)
        yield


def remembered(suspended: SuspendedWorkflows) -> int:
    return sum(workflow.size for workflow in suspended.unfinished.values())


async def test_however_many_wait_for_much_what_is_remembered_has_a_bound(
    penstock: Bench, suspended: SuspendedWorkflows
) -> None:
    for number in range(10):
        await forge(penstock, f"forged-{number}", 200)
        await look(penstock, suspended)
    assert len(suspended.unfinished) == 10
    assert MOST_BYTES / 2 < remembered(suspended) <= MOST_BYTES
    assert not suspended.unfinished["forged-9"].is_unread


async def test_one_that_is_larger_than_the_bound_is_not_remembered(
    penstock: Bench, suspended: SuspendedWorkflows
) -> None:
    await forge(penstock, "forged", 2_000)
    await look(penstock, suspended)
    assert remembered(suspended) <= MOST_BYTES


async def test_what_waits_for_little_is_not_forgotten(
    penstock: Bench, suspended: SuspendedWorkflows
) -> None:
    workflow_id = await penstock.client.dispatch(approvals(number=2))
    await penstock.run_pending()
    await look(penstock, suspended)
    await flood(penstock, suspended)
    assert not suspended.unfinished[workflow_id].is_unread


async def test_signals_wake_one_of_which_was_forgotten_what_it_waits_for(
    penstock: Bench, suspended: SuspendedWorkflows
) -> None:
    workflow_id = await penstock.client.dispatch(approvals(number=10))
    await penstock.run_pending()
    await look(penstock, suspended)
    await flood(penstock, suspended)
    assert suspended.unfinished[workflow_id].is_unread
    for number in range(10):
        await penstock.client.workflows.signal(workflow_id, f"approved-{number}", True)
    await look(penstock, suspended)
    assert woken(penstock) == 1


async def test_ends_of_steps_wake_one_of_which_was_forgotten_what_it_waits_for(
    penstock: Bench, suspended: SuspendedWorkflows
) -> None:
    workflow_id = await penstock.client.dispatch(reserves(number=10))
    await penstock.run_pending()
    await look(penstock, suspended)
    await flood(penstock, suspended)
    assert suspended.unfinished[workflow_id].is_unread
    with without_rounds():
        await penstock.skip_to_next_timer(0.001)
        await penstock.run_pending()
    await look(penstock, suspended)
    assert woken(penstock) == 1


async def test_one_that_is_forgotten_as_its_last_step_ends_is_woken(
    penstock: Bench, suspended: SuspendedWorkflows
) -> None:
    """Given that the forged ones come between the last end and the orchestrator's round."""
    await penstock.client.dispatch(reserves(number=10))
    await penstock.run_pending()
    await look(penstock, suspended)
    with without_rounds():
        await penstock.skip_to_next_timer(0.001)
        await penstock.run_pending()
    await flood(penstock, suspended)
    assert woken(penstock) == 1


async def test_steps_of_an_earlier_generation_are_cancelled_though_they_were_forgotten(
    penstock: Bench, suspended: SuspendedWorkflows
) -> None:
    workflow_id = await penstock.client.dispatch(restarts(number=10))
    await penstock.run_pending()
    await look(penstock, suspended)
    await flood(penstock, suspended)
    assert suspended.unfinished[workflow_id].is_unread
    await penstock.client.workflows.signal(workflow_id, "again")
    await look(penstock, suspended)
    with without_rounds():
        await penstock.run_pending()
    steps = [f"{workflow_id}_step_{n}" for n in range(10)]
    assert {(await penstock.client.job(step)).state for step in steps} == {State.SCHEDULED}
    await look(penstock, suspended)
    assert {(await penstock.client.job(step)).state for step in steps} == {State.CANCELLED}


def woken(bench: Bench) -> int:
    subjects = bench.bus.subjects
    return len(bench.bus.stored(subjects.jobs_stream, subjects.queue("workflows")))
