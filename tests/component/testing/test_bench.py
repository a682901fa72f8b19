"""`penstock.testing` as its users write tests: with the fixtures that the plug-in brings."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.config import Settings
from penstock.config.load import check
from penstock.jobs import (
    Backoff,
    BadArguments,
    Client,
    Context,
    JobType,
    Outcome,
    Step,
    SyncClient,
    WorkflowContext,
    awaiting,
    job,
    registry,
    workflow,
)
from penstock.jobs.lifecycle import State
from penstock.testing import Bench, SyncBench

OUTBOX: list[str] = []


@job(queue="mail", tags=["customer"])
def send_mail(number: int, text: str = "confirmed") -> str:
    OUTBOX.append(f"order {number} {text}")
    return text


@job(queue="orders", tries=4, backoff=Backoff(first_seconds=600))
def charge(context: Context, number: int, refused: int = 0) -> int:
    if context.attempt <= refused:
        raise ConnectionError("the bank is away")
    context.dispatch(send_mail(number=number))
    return context.attempt


@job(queue="orders")
async def close_month(context: Context, month: date) -> list[str]:
    assert context.batch is not None
    return context.batch.add([charge(number=number) for number in range(3)])


@job(queue="orders")
def total(amounts: list[int]) -> int:
    return sum(amounts)


@job(queue="orders")
def read_amounts() -> list[int]:
    return [1, 2, 3]


@job(queue="reports")
def report(outcome: Outcome) -> None:
    OUTBOX.append(f"{outcome.state}: {outcome.counts.completed} of {outcome.counts.total}")


@job(queue="reports")
def remind() -> None:
    OUTBOX.append("reminded")


@job(queue="reports", tries=1)
def count_rows(context: Context, rows: int) -> int:
    return context.spark.range(rows).count()


@workflow(name="bench.patient")
async def patient(ctx: WorkflowContext) -> list[float]:
    before = ctx.now()
    await ctx.sleep(timedelta(days=2))
    await ctx.run(remind())
    return [before.timestamp(), ctx.now().timestamp()]


JOBS: list[JobType[Any, Any]] = [
    send_mail, charge, close_month, total, read_amounts, report, remind, count_rows, patient,
]  # fmt: skip


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    OUTBOX.clear()
    registry.REGISTRY.update({each.name: each for each in JOBS})
    yield
    for each in JOBS:
        registry.REGISTRY.pop(each.name, None)


async def place_order(client: Client, number: int) -> None:
    """What a user's own code would be."""
    await client.dispatch(charge(number=number), tags=["web"])


# --- running --------------------------------------------------------------------------------------
async def test_an_order_is_charged_and_confirmed(penstock: Bench) -> None:
    await place_order(penstock.client, 7)
    penstock.assert_dispatched(charge, number=7)
    penstock.assert_not_dispatched(send_mail)
    assert await penstock.run_pending() == 2
    penstock.assert_dispatched_times(send_mail, 1, number=7)
    assert OUTBOX == ["order 7 confirmed"]


async def test_retries_run_without_waiting_for_their_backoff(penstock: Bench) -> None:
    job_id = await penstock.client.dispatch(charge(number=7, refused=3))
    assert await penstock.run_pending() == 5
    assert (await penstock.client.job(job_id)).result == 4


async def test_a_job_that_fails_for_good_is_dead(penstock: Bench) -> None:
    job_id = await penstock.client.dispatch(charge(number=7, refused=9))
    await penstock.run_pending()
    view = await penstock.client.job(job_id)
    assert (view.state, view.attempts) == (State.DEAD, 4)
    assert view.error.message == "the bank is away"
    penstock.assert_not_dispatched(send_mail)


async def test_delayed_jobs_wait_until_the_time_is_moved(penstock: Bench) -> None:
    await penstock.client.dispatch(remind(), delay=timedelta(days=3))
    assert await penstock.run_pending() == 0
    await penstock.advance(timedelta(days=2))
    assert await penstock.run_pending() == 0
    await penstock.advance(86_401)
    assert await penstock.run_pending() == 1
    assert OUTBOX == ["reminded"]


async def test_nothing_to_run(penstock: Bench) -> None:
    assert await penstock.run_pending() == 0
    penstock.assert_nothing_dispatched()


async def test_batches_run_with_their_callbacks(penstock: Bench) -> None:
    batch_id = await penstock.client.batches.create(
        [close_month(month=date(2026, 11, 1))], title="november", then=awaiting(report, "outcome")
    )
    assert penstock.assert_batch([close_month], title="november", jobs=1).id == batch_id
    await penstock.run_pending()
    assert penstock.assert_batch(title="november", jobs=4).counts.completed == 4
    assert OUTBOX[-1] == "completed: 4 of 4"
    penstock.assert_dispatched_times(charge, 3)


async def test_a_batch_that_fails_cancels_the_rest(penstock: Bench) -> None:
    calls = [charge(number=0, refused=9), *(charge(number=n) for n in range(1, 200))]
    await penstock.client.batches.create(calls, catch=awaiting(report, "outcome"))
    await penstock.run_pending()
    assert penstock.batches[0].state == "failed"
    assert OUTBOX[-1].startswith("failed: ")


async def test_chains_hand_results_on(penstock: Bench) -> None:
    chain = await penstock.client.graphs.chain([read_amounts(), awaiting(total, "amounts")])
    assert penstock.assert_chain([read_amounts, total]).id == chain
    await penstock.run_pending()
    assert (await penstock.client.graphs.step(chain, "2 total")).result == 6


def test_the_same_without_asyncio(penstock_sync: SyncBench) -> None:
    def code_under_test(client: SyncClient) -> str:
        return client.dispatch(charge(number=1))

    job_id = code_under_test(penstock_sync.client)
    penstock_sync.assert_dispatched(charge, number=1)
    assert penstock_sync.run_pending() == 2
    assert penstock_sync.client.job(job_id).result == 1
    penstock_sync.client.dispatch(remind(), delay=60)
    penstock_sync.advance(61)
    assert penstock_sync.run_pending() == 1


async def test_a_test_that_did_not_ask_for_spark_is_told_so(penstock: Bench) -> None:
    job_id = await penstock.client.dispatch(count_rows(rows=3))
    await penstock.run_pending()
    assert "did not ask for Spark" in (await penstock.client.job(job_id)).error.message


class TestWithSettingsOfOnesOwn:
    @pytest.fixture
    def penstock_settings(self) -> Settings:
        return check({"pools": {"mail": {"tries": 2}}})

    async def test_a_queues_pool_says_how_often_it_is_tried(self, penstock: Bench) -> None:
        await penstock.client.dispatch(charge(number=1), queue="mail")
        job_id = await penstock.client.dispatch(fragile(), queue="mail")
        await penstock.run_pending()
        assert (await penstock.client.job(job_id)).attempts == 2

    @pytest.fixture(autouse=True)
    def fragile_is_known(self) -> None:
        registry.REGISTRY[fragile.name] = fragile


@job
def fragile() -> None:
    raise ValueError("broken")


# --- what a failing assertion says ----------------------------------------------------------------
async def test_a_failing_assertion_tells_what_was_dispatched(penstock: Bench) -> None:
    with pytest.raises(AssertionError, match="nothing was dispatched"):
        penstock.assert_dispatched(charge)
    await place_order(penstock.client, 7)
    with pytest.raises(AssertionError, match=r"expected .*charge\(number=8\); dispatched were:\n"
                       r"  .*charge\(number=7, refused=0\) on orders"):  # fmt: skip
        penstock.assert_dispatched(charge, number=8)
    with pytest.raises(AssertionError, match=r"expected no .*charge"):
        penstock.assert_not_dispatched(charge)
    with pytest.raises(AssertionError, match=r"expected 2 times .*, found 1"):
        penstock.assert_dispatched_times(charge, 2)
    with pytest.raises(AssertionError, match="expected nothing; dispatched were"):
        penstock.assert_nothing_dispatched()
    with pytest.raises(AssertionError, match="on mail; dispatched were"):
        penstock.assert_dispatched(charge, on_queue="mail")
    with pytest.raises(BadArguments, match="there is no parameter 'nummer'"):
        penstock.assert_dispatched(charge, nummer=7)


async def test_batches_and_chains_that_do_not_fit(penstock: Bench) -> None:
    client = penstock.client
    await client.batches.create([charge(number=1), charge(number=2)], title="a")
    assert penstock.assert_batch([charge(number=2), charge]).title == "a"
    for wrong in ([charge], [charge(number=3), charge], [charge, charge, charge]):
        with pytest.raises(AssertionError, match=r"expected a batch of .*; found 1 other"):
            penstock.assert_batch(wrong)
    with pytest.raises(AssertionError, match="expected a batch 'b' of 3 jobs"):
        penstock.assert_batch(title="b", jobs=3)
    with pytest.raises(AssertionError, match="found no chain"):
        penstock.assert_chain([charge])
    await client.graphs.chain([charge(number=1), send_mail(number=1)])
    with pytest.raises(AssertionError, match="1 charge → 2 send_mail"):
        penstock.assert_chain([send_mail, charge])
    assert penstock.assert_chain([charge(number=1), send_mail])


async def test_a_graph_is_no_chain(penstock: Bench) -> None:
    steps = {"a": Step(charge(number=1)), "b": Step(charge(number=2))}
    await penstock.client.graphs.dispatch(steps)
    with pytest.raises(AssertionError, match="expected the chain"):
        penstock.assert_chain([charge, charge])
    assert len(penstock.graphs) == 1


# --- the plug-in ----------------------------------------------------------------------------------
USER_TEST = """
from penstock.jobs import job

@job
def greet(name: str) -> str:
    return f"hello {name}"

def test_it(penstock_sync):
    job_id = penstock_sync.client.dispatch(greet(name="you"))
    penstock_sync.run_pending()
    assert penstock_sync.client.job(job_id).result == "hello you"
"""


def test_a_user_needs_no_conftest(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(USER_TEST)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


async def test_a_bench_leaves_no_timer_that_would_kill_the_process(tmp_path: Path) -> None:
    def timers() -> list[str]:
        lines = Path("/proc/self/timers").read_text().splitlines()
        return [line for line in lines if line.startswith(f"signal: {int(signal.SIGKILL)}/")]

    before = timers()
    bench = Bench(run_dir=str(tmp_path))  # as with Spark: a folder with no executor in it
    job_id = await bench.client.dispatch(send_mail(number=1))
    await bench.run_pending()
    assert (await bench.client.job(job_id)).state is State.COMPLETED
    assert timers() == before


# --- ends -----------------------------------------------------------------------------------------
async def test_an_end_that_did_not_come_is_described(penstock: Bench) -> None:
    await penstock.client.dispatch(charge(number=7, refused=9))
    await penstock.client.dispatch(charge(number=8))
    await penstock.run_pending()
    assert [one.arguments["number"] for one in penstock.assert_completed(charge)] == [8]
    assert penstock.assert_completed(charge, result=1, number=8)
    assert penstock.assert_dead(charge, error=ConnectionError)
    assert penstock.assert_dead(charge, number=7)
    with pytest.raises(
        AssertionError, match=r"with the result 2; there are:\n(.*\n)*.*is completed"
    ):
        penstock.assert_completed(charge, result=2, number=8)
    with pytest.raises(AssertionError, match=r"to die of ValueError; .*\n.*the bank is away"):
        penstock.assert_dead(charge, error=ValueError)
    with pytest.raises(AssertionError, match="none was dispatched"):
        penstock.assert_completed(remind)


async def test_a_job_fails_as_often_as_a_test_says(penstock: Bench) -> None:
    with (
        penstock.failing(close_month, KeyError("no month")),
        penstock.failing(remind, OSError, times=1),
    ):
        await penstock.client.dispatch(close_month(month=date(2026, 11, 1)))
        await penstock.client.dispatch(remind())
        await penstock.run_pending()
    penstock.assert_dead(close_month, error=KeyError)
    penstock.assert_completed(remind)
    assert remind.function() is None


async def test_a_schedule_ticks_as_the_time_is_moved(penstock: Bench) -> None:
    await penstock.client.schedules.add("hourly", remind(), "0 * * * *")
    assert await penstock.run_pending() == 0
    for _ in range(2):
        await penstock.advance(3600)
        assert await penstock.run_pending() == 1
    await penstock.advance(timedelta(hours=5))
    assert await penstock.run_pending() == 1  # the latest of those that were missed
    await penstock.client.schedules.pause("hourly")
    await penstock.advance(3600)
    assert await penstock.run_pending() == 0


def test_a_schedule_without_asyncio(penstock_sync: SyncBench) -> None:
    penstock_sync.client.schedules.add("hourly", remind(), "0 * * * *")
    penstock_sync.advance(3600)
    assert penstock_sync.run_pending() == 1
    penstock_sync.assert_completed(remind)


async def test_there_is_one_time_and_it_is_moved(penstock: Bench) -> None:
    begun = penstock.now()
    late = await penstock.client.dispatch(remind())
    await penstock.advance(timedelta(days=1))
    await penstock.run_pending()
    assert (penstock.now() - begun).days == 1
    record = (await penstock.client.job(late)).record
    assert record.started_at is not None and record.finished_at is not None
    assert (record.started_at - record.dispatched_at).days == 1
    assert begun <= record.dispatched_at
    assert record.started_at <= record.finished_at <= penstock.now()

    order = await penstock.start(patient())
    await order.run()
    sleep, reminded = order.steps
    assert sleep.ended_at is not None and reminded.ended_at is not None
    times = [order.view.job.dispatched_at, sleep.since, sleep.ended_at, reminded.since]
    assert times == sorted(times)
    assert (sleep.ended_at - sleep.since).days == 2
    assert 0 <= (reminded.ended_at - reminded.since).total_seconds() < 60
    ended = order.view.job.record.finished_at
    assert ended is not None and order.result[1] <= ended.timestamp() <= penstock.now().timestamp()
