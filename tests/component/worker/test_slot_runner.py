"""Several jobs at a time in one process: each begins, ends and is measured on its own."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from tests.component.worker.given import WITHIN, Gate, once
from tests.component.worker.test_worker_runner import compute, held, result, wait

from penstock.jobs import Cancelled, Defer
from penstock.jobs.errors import TimedOut
from penstock.runtime.workers.claims_file import Claimed
from penstock.worker.claiming.claimed_job import ClaimDeadline, ClaimedJob
from penstock.worker.running.attempt import Functions
from penstock.worker.running.outcome import FinishedJob, Outcome
from penstock.worker.running.running_jobs import RunningJobs
from penstock.worker.running.slots import SlotRunner

SLOTS = 4


class Slots:
    """A runner of several jobs, and what it has finished."""

    def __init__(self, count: int = SLOTS, deadline: ClaimDeadline | None = None) -> None:
        self.running = RunningJobs()
        self.runner = SlotRunner(
            Functions(lambda job: job, None),
            self.running,
            slots=count,
            claimed=Claimed("", "w"),
            claim_deadline=deadline,
        )
        self._finished: list[FinishedJob] = []

    @property
    def finished(self) -> dict[ClaimedJob, Outcome]:
        self._finished += self.runner.finished.collect()
        return dict(self._finished)

    async def wait_for(self, *jobs: ClaimedJob) -> list[Outcome]:
        await once(lambda: {*jobs} <= {*self.finished})
        return [self.finished[job] for job in jobs]

    async def run(self, *jobs: ClaimedJob) -> list[Outcome]:
        self.runner.add(list(jobs))
        return await self.wait_for(*jobs)


@pytest.fixture
async def several() -> AsyncIterator[Slots]:
    several = Slots()
    yield several
    several.runner.stop()
    assert several.runner.alive


def given(function: Callable[..., Any], most_beside: int = 0, **arguments: Any) -> ClaimedJob:
    job = held(function, **arguments)
    job.most_beside = most_beside
    return job


# --- as many as there are slots -------------------------------------------------------------------
async def test_plain_functions_run_beside_each_other_up_to_the_slots(several: Slots) -> None:
    gate = Gate()
    jobs = [held(gate.pass_through, name=str(n)) for n in range(SLOTS + 2)]
    several.runner.add(jobs)
    await once(lambda: len(gate.came) == SLOTS)
    assert {*several.running.jobs} == {*jobs[:SLOTS]}
    assert several.runner.take_back() == jobs[SLOTS:]
    gate.open()
    await several.wait_for(*jobs[:SLOTS])
    assert len(gate.came) == SLOTS
    assert not several.running.jobs


async def test_asynchronous_functions_share_one_thread_and_take_slots_too(several: Slots) -> None:
    gate, seen = Gate(), set()

    async def meet() -> str:
        seen.add(threading.current_thread().name)
        while len(seen_jobs) < SLOTS - 1:  # noqa: ASYNC110 - the jobs share no event
            await asyncio.sleep(0.001)
        return "met"

    seen_jobs: list[int] = []

    async def come(n: int) -> str:
        seen_jobs.append(n)
        return await meet()

    plain = held(gate.pass_through)
    others = [held(come, n=n) for n in range(SLOTS + 3)]
    several.runner.add([plain, *others])
    outcomes = await several.wait_for(*others)
    assert [result(one) for one in outcomes] == ["met"] * len(others)
    assert seen == {"jobs"}
    gate.open()
    await several.wait_for(plain)


async def test_each_job_may_wait_in_a_thread_of_its_own() -> None:
    """asyncio's own pool has six threads on two cores."""
    several, all_there = Slots(40), threading.Barrier(40)

    async def call() -> None:
        await asyncio.to_thread(all_there.wait, WITHIN)

    outcomes = await several.run(*(held(call) for _ in range(40)))
    assert [one.error for one in outcomes] == [None] * 40
    several.runner.stop()


async def test_a_slot_that_becomes_free_takes_the_next_job_whatever_its_kind() -> None:
    async def soon() -> str:
        await asyncio.sleep(0)
        return "a"

    several = Slots(1)
    jobs = [held(soon) if n % 2 else held(lambda: "p") for n in range(20)]
    assert [result(one) for one in await several.run(*jobs)] == ["p", "a"] * 10
    several.runner.stop()


async def test_one_not_begun_is_dropped_and_one_that_runs_is_not(several: Slots) -> None:
    gate = Gate()
    jobs = [held(gate.pass_through) for _ in range(SLOTS + 2)]
    several.runner.add(jobs)
    await once(lambda: len(gate.came) == SLOTS)
    assert not several.runner.drop(jobs[0])
    assert several.runner.drop(jobs[-1])
    assert not several.runner.drop(jobs[-1])
    gate.open()
    await several.wait_for(*jobs[:-1])


async def test_none_begins_while_the_claims_may_have_lapsed() -> None:
    deadline = ClaimDeadline(0.0)
    several = Slots(deadline=deadline)
    late = held(lambda: 1)
    several.runner.add([late])
    assert several.runner.take_back() == [late]
    deadline.claim_seconds = 60.0
    assert [result(one) for one in await several.run(held(lambda: 2))] == [2]
    several.runner.stop()


# --- each ends on its own -------------------------------------------------------------------------
@pytest.mark.parametrize("reason", [Cancelled, TimedOut])
@pytest.mark.parametrize("function", [compute, wait])
async def test_one_of_many_is_interrupted_and_the_others_go_on(
    several: Slots, function: Any, reason: Any
) -> None:
    came: list[bool] = []
    gate = Gate()

    async def wait_too() -> str:
        while not gate.came:  # noqa: ASYNC110 - opened in another thread
            await asyncio.sleep(0.001)
        return "went on"

    job, beside, plain = held(function, came=came), held(wait_too), held(gate.pass_through)
    several.runner.add([job, beside, plain])
    await once(lambda: came and gate.came)
    several.running.interrupt(job, reason)
    [outcome] = await several.wait_for(job)
    assert outcome.error is not None
    kind = "timeout" if reason is TimedOut else "penstock.jobs.errors.Cancelled"
    assert outcome.error.kind == kind
    gate.open()
    assert [one.error for one in await several.wait_for(beside, plain)] == [None, None]


class Odd(BaseException):
    pass


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1), KeyboardInterrupt(), Odd()])
async def test_whatever_is_raised_ends_only_its_job(several: Slots, error: BaseException) -> None:
    async def fail_soon() -> None:
        await asyncio.sleep(0)
        raise error

    def fail() -> None:
        raise error

    async def good() -> int:
        await asyncio.sleep(0.01)
        return 1

    soon, plain, other = await several.run(held(fail_soon), held(fail), held(good))
    assert soon.error is not None
    assert plain.error is not None
    assert {soon.error.kind, plain.error.kind} == {plain.error.kind}
    assert result(other) == 1


async def test_a_task_left_behind_ends_with_its_job_and_takes_no_other_along(
    several: Slots,
) -> None:
    ends: list[str] = []

    async def stray(exit_code: int) -> None:
        try:
            if exit_code:
                raise SystemExit(exit_code)
            await asyncio.sleep(WITHIN)
        finally:
            ends.append("stray")

    async def leave(exit_code: int) -> int:
        tasks.append(asyncio.create_task(stray(exit_code)))
        await asyncio.sleep(0)
        return 7

    tasks: list[asyncio.Task[None]] = []
    outcomes = await several.run(held(leave, exit_code=0), held(leave, exit_code=3))
    assert [result(one) for one in outcomes] == [7, 7]
    assert ends == ["stray", "stray"]
    [again] = await several.run(held(leave, exit_code=0))
    assert result(again) == 7


async def test_a_verdict_is_no_failure(several: Slots) -> None:
    async def later() -> None:
        raise Defer(5, "not yet")

    [outcome] = await several.run(held(later))
    assert isinstance(outcome.verdict, Defer)


# --- each is measured on its own ------------------------------------------------------------------
async def test_processor_time_is_the_job_s_own_its_tasks_included(several: Slots) -> None:
    def work() -> None:
        until = time.thread_time() + 0.03
        while time.thread_time() < until:
            pass

    async def work_soon() -> None:
        async def part() -> None:
            await asyncio.sleep(0)
            work()

        await asyncio.gather(part(), part())

    async def idle() -> None:
        await asyncio.sleep(0.05)

    busy, waiting, plain = await several.run(held(work_soon), held(idle), held(work))
    assert busy.cpu_seconds >= 0.06
    assert plain.cpu_seconds >= 0.03
    assert waiting.cpu_seconds < 0.02
    assert waiting.run_seconds >= 0.05
    assert not waiting.peak_memory_bytes  # of the process: it says nothing of one of many


async def test_each_job_has_a_context_of_its_own(several: Slots) -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody")

    def mark(who: str) -> str:
        before = name.get()
        name.set(who)
        return before

    async def mark_soon(who: str) -> tuple[str, str]:
        before = mark(who)
        await asyncio.sleep(0.001)
        return before, await asyncio.to_thread(name.get)

    soon = [held(mark_soon, who=str(n)) for n in range(8)]
    plain = [held(mark, who=str(n)) for n in range(8)]
    outcomes = [result(one) for one in await several.run(*soon, *plain)]
    assert outcomes == [*(["nobody", str(n)] for n in range(8)), *(["nobody"] * 8)]


async def test_the_job_that_keeps_the_others_waiting_is_known(several: Slots) -> None:
    gate = Gate()

    async def block() -> None:
        gate.pass_through()

    job = held(block)
    several.runner.add([job])
    await once(lambda: gate.came)
    assert several.runner.holder is not None
    assert several.runner.holder[0] is job
    gate.open()
    await several.wait_for(job)
    assert several.runner.holder is None


# --- who is here ----------------------------------------------------------------------------------
async def test_its_company_counts_the_suspects_that_wait_and_run(several: Slots) -> None:
    gate = Gate()
    suspect, plain = given(gate.pass_through, most_beside=2), held(gate.pass_through)
    behind = [given(gate.pass_through, most_beside=9) for _ in range(SLOTS)]
    several.runner.add([suspect, plain, *behind])
    await once(lambda: len(gate.came) == SLOTS)
    several.runner.take_back()
    assert not several.runner.company().takes(9)
    assert several.runner.company().takes(0)
    gate.open()
    await several.wait_for(suspect, plain, *behind[: SLOTS - 2])
    assert several.runner.company().takes(1)


async def test_many_at_a_time_and_one_after_another() -> None:
    several = Slots(200)

    async def soon(n: int) -> int:
        await asyncio.sleep(0.01)
        return n

    jobs = [held(soon, n=n) if n % 2 else held(lambda n: n, n=n) for n in range(2_000)]
    outcomes = await several.run(*jobs)
    assert [msgspec.msgpack.decode(one.result) for one in outcomes] == list(range(2_000))
    several.runner.stop()
