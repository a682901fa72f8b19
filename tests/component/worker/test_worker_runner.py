"""The job thread: one job after another, ended from outside without harm to the next."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.component.worker.given import WITHIN, Gate, once
from tests.unit.jobs.telling import call

from penstock.bus.protocol import Delivery
from penstock.jobs import Cancelled
from penstock.jobs.errors import TimedOut
from penstock.jobs.job_type import JobType
from penstock.jobs.retry import Retries
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.running.attempt import Functions
from penstock.worker.running.outcome import FinishedJob, Outcome
from penstock.worker.running.runner import Runner
from penstock.worker.running.running_jobs import RunningJobs

ROOT = Path(__file__).parents[3]
NO_DELIVERY = Delivery(
    subject="",
    body=b"",
    headers={},
    ack_subject="",
    sequence=1,
    deliveries=1,
    stored_at=0,
    pending=0,
)


def held(function: Callable[..., Any], **arguments: Any) -> ClaimedJob:
    kind: JobType[Any, Any] = JobType(
        function, name="f", queue="q", tries=1, timeout_seconds=0, retries=Retries(), tags=()
    )
    return ClaimedJob(
        delivery=NO_DELIVERY, payload=call(), kind=kind, arguments=arguments, attempt=1, token=1,
        sequence=1, pickup_seconds=0, timeout_seconds=7, tries=1, started_at=0,
    )  # fmt: skip


class Thread:
    """A runner, and what it has finished."""

    def __init__(self) -> None:
        self.running = RunningJobs()
        self.runner = Runner(Functions(lambda job: job, None), self.running)
        self._finished: list[FinishedJob] = []

    @property
    def finished(self) -> list[ClaimedJob]:
        """In the order in which they finished."""
        self._finished += self.runner.finished.collect()
        return [job for job, _ in self._finished]

    async def run(self, *jobs: ClaimedJob) -> list[Outcome]:
        """How these jobs ended, once all have."""
        self.runner.add(list(jobs))
        return await self.wait_for(*jobs)

    async def wait_for(self, *jobs: ClaimedJob) -> list[Outcome]:
        async with asyncio.timeout(WITHIN):
            while not {*jobs} <= {*self.finished}:
                await self.runner.finished.wait()
        outcomes = dict(self._finished)
        return [outcomes[job] for job in jobs]


@pytest.fixture
async def thread() -> AsyncIterator[Thread]:
    thread = Thread()
    yield thread
    thread.runner.stop()
    await once(lambda: not thread.runner.alive)


def result(outcome: Outcome) -> Any:
    assert outcome.error is None, outcome.error
    return msgspec.msgpack.decode(outcome.result)


async def test_jobs_run_in_order_one_at_a_time(thread: Thread) -> None:
    jobs = [held(lambda n: (n, threading.current_thread().name), n=n) for n in range(5)]
    outcomes = await thread.run(*jobs)
    assert thread.finished == jobs
    assert [result(outcome) for outcome in outcomes] == [[n, "job"] for n in range(5)]
    assert all(outcome.run_seconds >= 0 for outcome in outcomes)


async def test_an_async_function_runs_to_its_end(thread: Thread) -> None:
    async def double(n: int) -> int:
        await asyncio.sleep(0)
        return 2 * n

    [outcome] = await thread.run(held(double, n=21))
    assert result(outcome) == 42


class Odd(BaseException):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), SystemExit(1), KeyboardInterrupt(), Odd(), StopIteration(), GeneratorExit()],
)
async def test_whatever_is_raised_ends_only_its_job(thread: Thread, error: BaseException) -> None:
    def fail() -> None:
        raise error

    failed, good = await thread.run(held(fail), held(lambda: 1))
    assert failed.error is not None
    assert failed.error.kind.endswith(type(error).__name__)
    assert "in fail" in failed.error.traceback
    assert result(good) == 1


async def test_a_job_s_span_can_be_written_to_where_nothing_is_traced(thread: Thread) -> None:
    """``ctx.span`` is an empty span then, not None."""
    job = held(lambda: job.live.span.set_attribute("rows", 3))
    [done] = await thread.run(job)
    assert done.error is None


async def test_a_result_that_cannot_travel_is_a_failure(thread: Thread) -> None:
    [outcome] = await thread.run(held(object))
    assert outcome.error is not None
    assert outcome.error.kind == "builtins.TypeError"


async def test_jobs_not_begun_are_taken_back(thread: Thread) -> None:
    gate = Gate()
    first, *others = (held(gate.pass_through) for _ in range(4))
    thread.runner.add([first, *others])
    await once(lambda: gate.came)
    assert not thread.runner.drop(first)
    assert thread.runner.drop(others[1])
    assert not thread.runner.drop(others[1])
    assert thread.runner.take_back() == [others[0], others[2]], "as they came"
    gate.open()
    await once(lambda: thread.finished == [first])
    assert len(gate.came) == 1


def compute(came: list[bool]) -> str:
    came.append(True)
    deadline = time.monotonic() + WITHIN
    while time.monotonic() < deadline:
        pass
    return "not interrupted"


async def wait(came: list[bool]) -> None:
    came.append(True)
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("reason", [Cancelled, TimedOut])
@pytest.mark.parametrize("function", [compute, wait])
async def test_a_running_job_is_interrupted(thread: Thread, function: Any, reason: Any) -> None:
    came: list[bool] = []
    job = held(function, came=came)
    thread.runner.add([job])
    await once(lambda: came)
    thread.running.interrupt(job, reason)
    [outcome] = await thread.wait_for(job)
    assert outcome.error is not None
    kind = "timeout" if reason is TimedOut else "penstock.jobs.errors.Cancelled"
    assert outcome.error.kind == kind


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns all the time, so that they meet in every line."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
async def test_an_interruption_that_comes_late_hits_nobody_else(thread: Thread) -> None:
    """Struck between a job's end and the next one's begin, it ended the thread, or the next job."""
    last_words: list[bool] = []

    def short() -> int:
        last_words.append(True)
        return 7

    for _ in range(200):
        last_words.clear()
        job, following = held(short), held(lambda: 8)
        thread.runner.add([job, following])
        while not last_words:
            pass
        thread.running.interrupt(job, Cancelled)
        first, second = await thread.wait_for(job, following)
        assert first.error is not None or result(first) == 7
        assert result(second) == 8
    assert thread.runner.alive


async def test_one_that_has_ended_or_not_begun_is_not_interrupted(thread: Thread) -> None:
    gate = Gate()
    first, second = held(lambda: gate.pass_through("1")), held(lambda: gate.pass_through("2"))
    thread.runner.add([first, second])
    await once(lambda: gate.came)
    thread.running.interrupt(second, Cancelled)
    gate.open()
    await once(lambda: thread.finished == [first, second])
    thread.running.interrupt(first, Cancelled)
    assert all(one.error is None for one in await thread.wait_for(first, second))


async def test_cpu_time_is_the_job_s_own(thread: Thread) -> None:
    def work() -> None:
        until = time.thread_time() + 0.03
        while time.thread_time() < until:
            pass

    busy, idle = await thread.run(held(work), held(lambda: None))
    assert busy.cpu_seconds >= 0.03
    assert idle.cpu_seconds < 0.02
    assert busy.run_seconds >= 0.03


_TRACED = """
import asyncio, sys, threading
from penstock.jobs import Cancelled
from tests.component.worker.test_worker_runner import Thread, held

came = threading.Event()

def ended_early():
    try:
        came.set()
        while True:
            pass
    except Cancelled:
        return 1

def traced():
    sys.settrace(lambda *_: None)
    try:
        return held(ended_early)
    finally:
        sys.settrace(None)

async def main():
    thread = Thread()
    first = held(ended_early)
    running = asyncio.create_task(thread.run(first))
    while not came.is_set():
        await asyncio.sleep(0)
    thread.running.interrupt(first, Cancelled)
    [early] = await running
    [late] = await thread.run(held(lambda: traced() and None))
    assert early.error is None and late.error is None
    thread.runner.stop()

asyncio.run(main())
"""


def test_a_traced_job_runs_after_one_that_was_interrupted() -> None:
    """As under a debugger, or where coverage is measured; in a process that may hang whole."""
    subprocess.run([sys.executable, "-c", _TRACED], check=True, timeout=60, cwd=ROOT)
