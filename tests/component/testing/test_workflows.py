"""Workflows from end to end in memory: the real worker, the real orchestrator's wake-ups."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.waiting import eventually

from penstock.events.envelope import encode
from penstock.events.job import JobStarted
from penstock.events.subjects import BadName
from penstock.events.workflow import (
    StepRecorded,
    StepsScheduled,
    WorkflowAdvanced,
)
from penstock.events.workflow_memo import (
    InlineResult,
    Resolution,
)
from penstock.jobs import (
    JobRefused,
    JobView,
    NotFound,
    State,
    StepFailed,
    WorkflowContext,
    WorkflowError,
    job,
    job_view,
    registry,
    workflow,
)
from penstock.jobs.job_log import JobLog
from penstock.jobs.job_type import encode_result
from penstock.jobs.payloads import redaction
from penstock.jobs.payloads.encryption import KeyRing
from penstock.jobs.queues import queue_messages
from penstock.jobs.workflows.coded.running import unrecorded
from penstock.orchestrator.workflows.suspended.suspended_workflows import SuspendedWorkflows
from penstock.testing import Bench
from penstock.worker.workflows import advances
from penstock.worker.workflows.suspensions import Suspensions

RATES: list[str] = []


@pytest.fixture
def penstock() -> Iterator[Bench]:
    RATES.clear()
    yield Bench()


@job(queue="cards", tries=1)
def charge(order: int) -> str:
    if order < 0:
        raise ValueError("no such order")
    return f"receipt {order}"


@job(queue="stock")
def reserve(order: int) -> int:
    return order * 2


def fetch_rate(currency: str) -> float:
    RATES.append(currency)
    return 1.5


@workflow()
async def fulfil(ctx: WorkflowContext, order: int) -> dict[str, Any]:
    receipt = await ctx.run(charge(order=order))
    rate = await ctx.step("rate", fetch_rate, "EUR")
    stock, again = await ctx.gather(reserve(order=order), reserve(order=order + 1))
    ctx.set_status(stage="packed", parcels=2)
    return {"receipt": receipt, "rate": rate, "stock": [stock, again]}


async def test_steps_run_in_their_own_queues_and_are_joined(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(fulfil(order=7))
    await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id)
    assert view.state is State.COMPLETED
    assert view.job.result == {"receipt": "receipt 7", "rate": 1.5, "stock": [14, 16]}
    assert [(step.key, step.outcome) for step in view.steps] == [
        ("charge", "completed"),
        ("rate", "completed"),
        ("gather/reserve", "completed"),
        ("gather/reserve#2", "completed"),
    ]
    assert RATES == ["EUR"]
    penstock.assert_dispatched_times(reserve, 2, on_queue="stock")


async def test_a_join_costs_one_advance(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(fulfil(order=7))
    await penstock.run_pending()
    history = (await penstock.client.job(workflow_id)).events
    kinds = [type(event) for _, event in history]
    assert kinds.count(WorkflowAdvanced) == 2
    assert kinds.count(JobStarted) == 3
    assert kinds.count(StepRecorded) == 1


@workflow()
async def careful(ctx: WorkflowContext, order: int) -> str:
    try:
        return str(await ctx.run(charge(order=order)))
    except StepFailed as failure:
        return f"{failure.key}: {failure.kind}"


async def test_a_dead_step_is_an_error_at_its_await(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(careful(order=-1))
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == "charge: builtins.ValueError"


@workflow()
async def reminded(ctx: WorkflowContext) -> str:
    began = ctx.now()
    await ctx.sleep(timedelta(hours=1))
    return f"{(ctx.now() - began).total_seconds():.0f} s"


async def test_a_timer_wakes_it(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(reminded())
    await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id)
    assert view.state is State.SUSPENDED
    assert [(step.key, step.kind) for step in view.waits_for] == [("sleep", "timer")]
    await penstock.advance(timedelta(minutes=59))
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.SUSPENDED
    await penstock.advance(timedelta(minutes=1, seconds=1))
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.COMPLETED


async def test_a_timer_that_fires_a_moment_early_costs_no_advance(
    penstock: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a clock that goes on only while the worker sleeps."""
    clock, started = penstock._clock, penstock.now().timestamp()
    monkeypatch.setattr(type(clock), "__call__", lambda self: started + self.ahead_seconds)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.ahead_seconds += seconds

    monkeypatch.setattr(advances, "time", SimpleNamespace(sleep=sleep))
    workflow_id = await penstock.client.dispatch(reminded())
    await penstock.run_pending()
    await penstock.advance(timedelta(hours=1) - timedelta(milliseconds=10))
    penstock.bus.fire(penstock.bus.subjects.schedule("workflows", workflow_id))
    await penstock.run_pending()
    view = await penstock.client.job(workflow_id)
    assert view.state is State.COMPLETED
    assert [type(event) for _, event in view.events].count(WorkflowAdvanced) == 1
    assert slept == [0.01]


@workflow()
async def approved(ctx: WorkflowContext) -> list[bool]:
    first = await ctx.wait_signal("approved", bool)
    second = await ctx.wait_signal("approved", bool, timeout=timedelta(days=2), default=False)
    return [first, second]


async def test_signals_are_consumed_in_order_once(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(approved())
    signal = penstock.client.workflows.signal
    await signal(workflow_id, "approved", True, signal_id="a")
    await signal(workflow_id, "approved", True, signal_id="a")
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.SUSPENDED
    await signal(workflow_id, "approved", False)
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == [True, False]
    with pytest.raises(JobRefused, match="it is completed"):
        await signal(workflow_id, "approved", True)


async def test_a_signal_that_does_not_come_leads_to_the_default(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(approved())
    await penstock.client.workflows.signal(workflow_id, "approved", True)
    await penstock.run_pending()
    await penstock.advance(timedelta(days=2, seconds=1))
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == [True, False]


@workflow()
async def raced(ctx: WorkflowContext, order: int) -> Any:
    return await ctx.race(reserve(order=order), ctx.sleep(60))


async def test_the_loser_of_a_race_is_given_up(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(raced(order=2))
    await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id)
    assert view.job.result == 4


@workflow()
async def hurried(ctx: WorkflowContext, order: int) -> Any:
    await ctx.race(ctx.sleep(60), delayed_reserve(order))
    return await ctx.run(charge(order=order))


async def delayed_reserve(order: int) -> None:
    await asyncio.sleep(1)


async def test_a_foreign_await_names_its_place(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(hurried(order=1))
    await penstock.run_pending()
    error = (await penstock.client.job(workflow_id)).error
    assert error is not None and error.kind.endswith(WorkflowError.__name__)
    assert f"{__file__}:" in error.message


async def test_a_cancelled_workflow_does_not_go_on(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(reminded())
    await penstock.run_pending()
    view = await penstock.client.workflows.cancel(workflow_id, "no need", cleanup_seconds=0)
    assert view.state is State.CANCELLED
    await penstock.advance(timedelta(hours=2))
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.CANCELLED


async def test_other_code_blocks_it_until_the_first_is_back(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(reminded())
    await penstock.run_pending()
    original = reminded.function

    async def changed(ctx: WorkflowContext) -> str:
        return str(await ctx.run(charge(order=1)))

    reminded.function = changed  # type: ignore[assignment]
    try:
        await penstock.advance(timedelta(hours=2))
        await penstock.run_pending()
        view = await penstock.client.workflows.get(workflow_id)
        assert view.state is State.SUSPENDED
        assert "recorded is timer 'sleep'" in view.blocked
    finally:
        reminded.function = original
    await penstock.advance(timedelta(minutes=2))
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.COMPLETED


async def test_steps_that_a_crash_left_out_are_dispatched(
    penstock: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash(*_: object) -> None: ...

    with monkeypatch.context() as patched:
        patched.setattr(Suspensions, "dispatch_steps", crash)
        workflow_id = await penstock.client.dispatch(fulfil(order=7))
        await penstock.run_pending()
        assert (await penstock.client.job(workflow_id)).state is State.SUSPENDED
        penstock.assert_not_dispatched(charge)
    await penstock.advance(11)
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.COMPLETED
    penstock.assert_dispatched_times(charge, 1)


@pytest.mark.parametrize("header", ["0 0", "7 7", "", "-1 0", "1", "1 1 1", "x y", "9999999 0"])
async def test_a_message_that_names_other_counts_than_the_log_has_does_no_harm(
    penstock: Bench, header: str
) -> None:
    workflow_id = await penstock.client.dispatch(approved())
    await penstock.client.workflows.signal(workflow_id, "approved", True)
    await penstock.run_pending()
    record = (await penstock.client.job(workflow_id)).record
    assert record.state is State.SUSPENDED
    forged = queue_messages.ready(penstock.bus.subjects, record, {})
    headers = {**forged.headers, queue_messages.RECORDED: header}
    await penstock.bus.append(msgspec.structs.replace(forged, headers=headers))
    await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id)
    assert view.state is State.SUSPENDED
    assert [step.key for step in view.steps] == ["approved", "approved#2"]


@workflow()
async def counts(ctx: WorkflowContext) -> int:
    return sum([await ctx.run(reserve(order=1)) for _ in range(30)])


async def test_who_waits_for_a_long_workflow_does_not_read_it_at_each_advance(
    penstock: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    read = job_view.read

    async def counted(log: JobLog, job_id: str, ring: KeyRing) -> JobView:
        reads.append(job_id)
        return await read(log, job_id, ring)

    workflow_id = await penstock.client.dispatch(counts())
    with monkeypatch.context() as patched:
        patched.setattr(job_view, "read", counted)
        waiting = asyncio.create_task(penstock.client.wait(workflow_id, 10.0))
        await penstock.run_pending()
        assert (await waiting).result == 60
    assert len(reads) < 15


async def test_a_lost_wake_up_comes_again(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(approved())
    await penstock.run_pending()
    subjects = penstock.bus.subjects
    suspended = SuspendedWorkflows(penstock.bus, subjects, penstock.client)
    follower = asyncio.create_task(suspended.follow())
    try:
        await penstock.client.workflows.signal(workflow_id, "approved", True)
        await eventually(lambda: suspended.position >= 4, 5.0, "the signal")
        await suspended.round(penstock.bus.now())
        stored = penstock.bus.stored(subjects.jobs_stream, subjects.queue("workflows"))
        assert len(stored) == 1
        await penstock.bus.remove(
            subjects.jobs_stream, subjects.queue("workflows"), stored[0].sequence + 1
        )
        await suspended.round(penstock.bus.now() + 1.0)
        assert not penstock.bus.stored(subjects.jobs_stream, subjects.queue("workflows"))
        await suspended.round(penstock.bus.now() + 400.0)
        assert len(penstock.bus.stored(subjects.jobs_stream, subjects.queue("workflows"))) == 1
    finally:
        follower.cancel()


async def test_a_join_of_more_than_one_message_holds_is_recorded_in_parts(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(broad(steps=2_500))
    await penstock.run_pending()
    view = await penstock.client.job(workflow_id)
    assert view.result == sum(range(2_500)) * 2
    kinds = [type(event) for _, event in view.events]
    assert kinds.count(WorkflowAdvanced) == 1
    assert 3 <= kinds.count(StepsScheduled) <= 10
    penstock.assert_dispatched_times(reserve, 2_500)


@workflow()
async def broad(ctx: WorkflowContext, steps: int) -> int:
    return sum(await ctx.gather(*(reserve(order=order) for order in range(steps))))


async def test_steps_of_a_part_that_a_crash_left_out_are_dispatched(
    penstock: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash(*_: object) -> None: ...

    monkeypatch.setattr(unrecorded, "MAX_PART_BYTES", 2_000)
    with monkeypatch.context() as patched:
        patched.setattr(advances, "send_steps", crash)
        workflow_id = await penstock.client.dispatch(broad(steps=20))
        await penstock.run_pending()
        assert (await penstock.client.job(workflow_id)).state is State.SUSPENDED
    await penstock.advance(11)
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == sum(range(20)) * 2


@job(queue="notes")
def note(text: str) -> int:
    return len(text)


@workflow(tries=1)
async def verbose(ctx: WorkflowContext, length: int) -> Any:
    return await ctx.gather(*(ctx.run(note(text="x" * length)) for _ in range(3)))


async def test_steps_with_large_arguments_are_recorded_one_by_one(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(verbose(length=200_000))
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == [200_000] * 3


async def test_a_step_with_too_large_arguments_is_an_error(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(verbose(length=2_000_000))
    await penstock.run_pending()
    error = (await penstock.client.job(workflow_id)).error
    assert error is not None
    assert "jobs.max_payload_bytes" in error.message


@workflow(tries=2, backoff=[0.01])
async def flaky(ctx: WorkflowContext) -> str:
    receipt = await ctx.run(charge(order=1))
    RATES.append(receipt)
    if len(RATES) == 1:
        raise ConnectionError("once")
    return str(receipt)


async def test_an_advance_that_fails_is_tried_again_with_what_was_recorded(
    penstock: Bench,
) -> None:
    workflow_id = await penstock.client.dispatch(flaky())
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == "receipt 1"
    penstock.assert_dispatched_times(charge, 1)


async def test_a_dead_workflow_goes_on_from_its_memo_when_it_is_requeued(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(stuck())
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.DEAD
    RATES.append("fixed")
    await penstock.client.retry(workflow_id)
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == "receipt 1"
    penstock.assert_dispatched_times(charge, 1)


@workflow(tries=1)
async def stuck(ctx: WorkflowContext) -> str:
    receipt = await ctx.run(charge(order=1))
    if not RATES:
        raise ConnectionError("until someone mends it")
    return str(receipt)


@job(queue="cards", encrypted=True)
def sealed(order: int) -> None: ...


async def test_an_encrypted_step_blocks_a_workflow_whose_worker_has_no_key(penstock: Bench) -> None:
    STEPS[:] = [sealed(order=1)]
    workflow_id = await penstock.client.dispatch(runs_anything())
    await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id)
    assert view.state is State.SUSPENDED
    assert "encryption.key_file names no keys" in view.blocked


async def test_what_cannot_be_a_step_is_refused(penstock: Bench) -> None:
    STEPS[:] = [5]
    workflow_id = await penstock.client.dispatch(runs_anything())
    await penstock.run_pending()
    error = (await penstock.client.job(workflow_id)).error
    assert error is not None
    assert error.kind.endswith(WorkflowError.__name__)


STEPS: list[Any] = []


@workflow(tries=1)
async def runs_anything(ctx: WorkflowContext) -> None:
    await ctx.run(STEPS[0])


@workflow(tries=1)
async def reads_much(ctx: WorkflowContext) -> str:
    return await ctx.step("read", "x".__mul__, 600_000)


async def test_an_inline_step_with_too_large_a_result_is_an_error(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(reads_much())
    await penstock.run_pending()
    error = (await penstock.client.job(workflow_id)).error
    assert error is not None
    assert "step 'read': its encoded result has 600,005 bytes" in error.message


async def test_ids_of_workflows_leave_room_for_those_of_their_steps(penstock: Bench) -> None:
    with pytest.raises(BadName, match="at most 36"):
        await penstock.client.dispatch(reminded(), job_id="w" * 37)


def test_what_a_workflow_recorded_is_shown_without_its_bytes() -> None:
    result = encode_result("secret")
    inline = InlineResult("rate", "fetch_rate", result)
    consumed = (Resolution(key="charge", outcome="completed", value=result),)
    event = StepRecorded(
        job_id="w", number=1, now=datetime.now(UTC), consumed=consumed, inline=inline
    )
    shown = str(redaction.event(msgspec.json.decode(encode(event))))
    assert b64encode(result).decode() not in shown
    assert "7 bytes" in shown


async def test_a_workflow_of_which_only_the_end_is_left_is_told_from_other_jobs(
    penstock: Bench,
) -> None:
    client = penstock.client
    workflow_id = await client.dispatch(fulfil(order=7))
    await penstock.run_pending()
    end = (await client.job(workflow_id)).events[-1][0]
    bus = penstock.bus
    own = bus.subjects.events("job", workflow_id)
    await bus.remove(bus.subjects.events_stream, own, before=end)
    assert (await client.job(workflow_id)).result["receipt"] == "receipt 7"
    with pytest.raises(JobRefused, match="has left the event log"):
        await client.workflows.get(workflow_id)


async def test_a_signal_to_another_kind_of_job_is_refused(penstock: Bench) -> None:
    job_id = await penstock.client.dispatch(charge(order=1))
    with pytest.raises(JobRefused, match="is no workflow"):
        await penstock.client.workflows.signal(job_id, "approved")
    with pytest.raises(NotFound):
        await penstock.client.workflows.signal("unknown", "approved")


@pytest.mark.parametrize(
    ("name", "value"), [("", 1), ("n" * 65, 1), ("n", "v" * 70_000), ("n", object())]
)
async def test_a_signal_that_cannot_be_stored_is_refused(
    penstock: Bench, name: str, value: Any
) -> None:
    workflow_id = await penstock.client.dispatch(reminded())
    with pytest.raises(JobRefused):
        await penstock.client.workflows.signal(workflow_id, name, value)


def test_a_workflow_is_an_async_function() -> None:
    def plain(ctx: WorkflowContext) -> None: ...

    with pytest.raises(TypeError, match="async def"):
        workflow(name="tests.plain")(plain)  # type: ignore[arg-type]
    assert "tests.plain" not in registry.REGISTRY


@job(result_expires_seconds=60)
def forgetful() -> str:
    return "forgotten"


@job(store_result=False)
def silent() -> str:
    return "not stored"


@workflow(tries=1)
async def late(ctx: WorkflowContext) -> list[Any]:
    return list(await ctx.gather(forgetful(), silent(), ctx.sleep(3600)))


async def test_a_result_that_expired_before_it_was_taken_note_of_is_an_error_at_its_await(
    penstock: Bench,
) -> None:
    workflow_id = await penstock.client.dispatch(late())
    await penstock.run_pending()
    await penstock.advance(timedelta(hours=2))
    await penstock.run_pending()
    view = await penstock.client.job(workflow_id)
    assert view.error is not None
    assert "its result was stored until" in view.error.message
    assert view.error.kind.endswith(StepFailed.__name__)


@workflow()
async def in_time(ctx: WorkflowContext) -> list[Any]:
    return list(await ctx.gather(forgetful(), silent()))


async def test_a_result_is_taken_note_of_before_it_expires_and_none_is_none(
    penstock: Bench,
) -> None:
    workflow_id = await penstock.client.dispatch(in_time())
    await penstock.run_pending()
    await penstock.advance(timedelta(hours=2))
    assert (await penstock.client.job(workflow_id)).result == ["forgotten", None]
