"""A worker with several slots on the bus in memory: what holds for one job holds for each of
many."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.component.worker.given import QUEUE, WITHIN, Stage, once, settings

from penstock.config import Settings
from penstock.config.load import check
from penstock.events.job import JobRecovered, JobStarted
from penstock.events.worker import WorkerReport
from penstock.jobs import Context, JobType, WithoutOverlapping, job, registry
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import State
from penstock.jobs.queues import queue_messages
from penstock.testing.memory.bus import MemoryBus
from penstock.worker.running.ending import UNRESPONSIVE

SLOTS = 20


class Hall:
    """Jobs wait here until they are let go; it knows who came and who left how."""

    def __init__(self) -> None:
        self.came: list[str] = []
        self.left: list[tuple[str, str]] = []
        self.most = 0
        self._inside: set[str] = set()
        self.open = threading.Event()

    def enter(self, name: str) -> None:
        self.came.append(name)
        self._inside.add(name)
        self.most = max(self.most, len(self._inside))

    def leave(self, name: str, how: str) -> None:
        self._inside.discard(name)
        self.left.append((name, how))


HALL = Hall()


@job(queue=QUEUE)
async def stay(name: str = "") -> str:
    HALL.enter(name)
    try:
        while not HALL.open.is_set():  # noqa: ASYNC110 - opened in another thread
            await asyncio.sleep(0.002)
    except asyncio.CancelledError:
        HALL.leave(name, "cancelled")
        raise
    HALL.leave(name, "let go")
    return name


@job(queue=QUEUE)
def stay_put(name: str = "") -> str:
    HALL.enter(name)
    try:
        while not HALL.open.is_set():
            time.sleep(0.002)
    except BaseException:
        HALL.leave(name, "cancelled")
        raise
    HALL.leave(name, "let go")
    return name


@job(queue=QUEUE, timeout_seconds=0.2)
async def overrun() -> None:
    await asyncio.sleep(WITHIN)


@job(queue=QUEUE, timeout_seconds=0.2)
def overrun_plainly() -> None:
    while True:
        time.sleep(0.002)


@job(queue=QUEUE, timeout_seconds=0.2)
async def refuse_to_end(name: str = "stubborn") -> str:
    HALL.enter(name)
    while not HALL.open.is_set():
        try:
            await asyncio.sleep(0.002)
        except asyncio.CancelledError:
            HALL.leave(name, "refused")
    return name


@job(queue=QUEUE, tries=3, timeout_seconds=0.2)
def refuse_plainly(name: str = "stubborn") -> str:
    HALL.enter(name)
    while not HALL.open.is_set():
        try:
            time.sleep(0.002)
        except BaseException:
            HALL.leave(name, "refused")
    return name


@job(queue=QUEUE, timeout_seconds=0.2)
async def block(name: str = "stubborn") -> None:
    HALL.enter(name)
    HALL.open.wait(WITHIN)


@job(queue=QUEUE)
async def compute() -> None:
    while True:
        sum(range(10_000))
        await asyncio.sleep(0)


@job(queue=QUEUE)
async def tell(context: Context, number: int) -> int:
    context.progress(number, 100)
    await asyncio.sleep(0.01)
    return number


@job(queue=QUEUE)
async def use_spark(context: Context) -> None:
    context.spark.range(1)


@job(queue=QUEUE, middleware=[WithoutOverlapping("{name}", limit=2, otherwise="skip")])
async def stay_with_few(name: str) -> str:
    return await stay.function(f"{name}-{len(HALL.came)}")


JOBS: list[JobType[Any, Any]] = [
    stay, stay_put, overrun, overrun_plainly, refuse_to_end, refuse_plainly, block, compute, tell,
    use_spark, stay_with_few,
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def known() -> Iterator[None]:
    registry.REGISTRY.update({each.name: each for each in JOBS})
    yield
    for each in JOBS:
        registry.REGISTRY.pop(each.name, None)


@pytest.fixture(autouse=True)
def hall() -> Iterator[None]:
    HALL.__init__()  # type: ignore[misc]
    yield
    HALL.open.set()


def with_slots(
    slots: int = SLOTS, drain_seconds: float = WITHIN, cpu_seconds: float = 0.0, **jobs: Any
) -> Settings:
    known = msgspec.to_builtins(settings(tries=3, **jobs))
    pools = {QUEUE: {"tries": 1, "slots": slots, "limit_job_cpu_seconds": cpu_seconds}}
    host = {"name": "h", "drain_seconds": drain_seconds}
    return check({"prefix": "p", "host": host, "jobs": known["jobs"], "pools": pools})


@pytest.fixture
async def stage() -> Stage:
    return Stage(with_slots())


async def came(count: int) -> None:
    await once(lambda: len(HALL.came) >= count)


# --- many at a time -------------------------------------------------------------------------------
async def test_as_many_run_at_a_time_as_there_are_slots_and_all_once(stage: Stage) -> None:
    calls = [(stay if n % 2 else stay_put)(name=str(n)) for n in range(2 * SLOTS)]
    async with stage.worker():
        ids = await stage.client.dispatch_many(calls)
        await came(SLOTS)
        # those that wait behind long jobs are another worker's to take
        await once(lambda: _claimed(stage, SLOTS))
        assert HALL.most == SLOTS
        HALL.open.set()
        for number, job_id in enumerate(ids):
            assert (await stage.ended(job_id)).result == str(number)
    assert sorted(HALL.came) == sorted(str(n) for n in range(2 * SLOTS))
    assert HALL.most == SLOTS
    await stage.emptied()


async def test_one_pull_takes_as_many_as_there_are_free_slots(stage: Stage) -> None:
    await stage.client.dispatch_many([stay(name=str(n)) for n in range(2 * SLOTS)])
    pulls: list[int] = []
    bus = stage.bus.client()
    make = bus.puller

    class Counted:
        def __init__(self, queue: str) -> None:
            self._puller = make(queue)

        async def fetch(self, most: int, wait_seconds: float) -> Any:
            deliveries = await self._puller.fetch(most, wait_seconds)
            pulls.append(len(deliveries))
            return deliveries

        async def close(self) -> None:
            await self._puller.close()

    bus.puller = Counted  # type: ignore[method-assign, assignment]
    async with stage.worker(bus):
        await came(SLOTS)
        HALL.open.set()
    assert pulls[0] == SLOTS


async def test_a_worker_that_runs_jobs_takes_those_that_come_for_its_free_slots(
    stage: Stage,
) -> None:
    async with stage.worker():
        for count in range(1, 6):
            await stage.client.dispatch(stay(name=str(count)))
            await came(count)
        HALL.open.set()


async def test_each_job_reports_its_own_progress(stage: Stage) -> None:
    async with stage.worker():
        ids = await stage.client.dispatch_many([tell(number=n) for n in range(SLOTS)])
        assert [(await stage.ended(each)).result for each in ids] == list(range(SLOTS))


async def test_its_report_says_how_many_slots_it_has_and_uses(stage: Stage) -> None:
    reports: list[WorkerReport] = []

    def take(_: str, body: bytes) -> None:
        reports.append(msgspec.json.decode(body, type=WorkerReport))

    subject = stage.subjects.worker_report("*", "*")
    listening = await stage.bus.listen(subject, take)
    async with stage.worker():
        await stage.client.dispatch_many([stay(name=str(n)) for n in range(7)])
        await once(lambda: reports and reports[-1].slots_used == 7)
        assert (reports[-1].slots, reports[-1].held, reports[-1].state) == (SLOTS, 7, "busy")
        HALL.open.set()
        await once(lambda: reports[-1].slots_used == 0)
    await listening.unsubscribe()


async def test_a_semaphore_holds_between_jobs_of_one_process(stage: Stage) -> None:
    async with stage.worker():
        ids = await stage.client.dispatch_many([stay_with_few(name="a") for _ in range(6)])
        await once(lambda: _ended(stage, ids, 4))
        assert len(HALL.came) == 2
        HALL.open.set()
        views = [await stage.ended(each) for each in ids]
    states = sorted(str(view.state) for view in views)
    assert states == ["cancelled"] * 4 + ["completed"] * 2


async def test_spark_is_refused_with_the_reason(stage: Stage) -> None:
    async with stage.worker():
        view = await stage.ended(await stage.client.dispatch(use_spark()))
    assert view.state is State.DEAD
    assert view.error is not None
    assert "slots = 1" in view.error.message


# --- each is ended on its own ---------------------------------------------------------------------
@pytest.mark.parametrize("function", [stay, stay_put])
async def test_one_of_many_is_cancelled_and_the_others_complete(
    stage: Stage, function: JobType[Any, Any]
) -> None:
    async with stage.worker():
        ids = await stage.client.dispatch_many([function(name=str(n)) for n in range(SLOTS)])
        await came(SLOTS)
        await stage.client.cancel(ids[3])
        await once(lambda: ("3", "cancelled") in HALL.left)
        assert len(HALL.left) == 1
        HALL.open.set()
        states = [(await stage.ended(each)).state for each in ids]
    assert states.count(State.COMPLETED) == SLOTS - 1
    assert states[3] is State.CANCELLED
    await stage.emptied()


@pytest.mark.parametrize("function", [overrun, overrun_plainly])
async def test_one_of_many_times_out_and_the_others_complete(
    stage: Stage, function: JobType[Any, Any]
) -> None:
    async with stage.worker() as worker:
        ids = await stage.client.dispatch_many([stay(name=str(n)) for n in range(SLOTS - 1)])
        await came(SLOTS - 1)
        view = await stage.ended(await stage.client.dispatch(function()))
        assert view.error is not None
        assert (view.state, view.error.kind) == (State.DEAD, "timeout")
        assert not worker.stopping
        HALL.open.set()
        assert {(await stage.ended(each)).state for each in ids} == {State.COMPLETED}
    await stage.emptied()


async def test_one_of_many_that_computes_too_long_fails_and_the_others_complete() -> None:
    stage = Stage(with_slots(cpu_seconds=0.2))
    async with stage.worker():
        ids = await stage.client.dispatch_many([stay(name=str(n)) for n in range(SLOTS - 1)])
        await came(SLOTS - 1)
        view = await stage.ended(await stage.client.dispatch(compute()))
        assert view.error is not None
        assert (view.state, view.error.kind) == (State.DEAD, "cpu-limit")
        HALL.open.set()
        assert {(await stage.ended(each)).state for each in ids} == {State.COMPLETED}


# --- the worker ends ------------------------------------------------------------------------------
async def test_a_worker_that_ends_finishes_what_runs_and_takes_no_more(stage: Stage) -> None:
    async with stage.worker() as worker:
        calls = [(stay if n % 2 else stay_put)(name=str(n)) for n in range(SLOTS + 5)]
        ids = await stage.client.dispatch_many(calls)
        await came(SLOTS)
        worker.stop("asked to end")
        HALL.open.set()
        await once(lambda: _ended(stage, ids, SLOTS))
    states = [(await stage.client.job(each)).state for each in ids]
    assert (states.count(State.COMPLETED), states.count(State.WAITING)) == (SLOTS, 5)
    assert len(HALL.came) == SLOTS


async def test_a_worker_that_ends_quickly_gives_all_back(stage: Stage) -> None:
    calls = [(stay if n % 2 else stay_put)(name=str(n)) for n in range(SLOTS)]
    async with stage.worker() as worker:
        ids = await stage.client.dispatch_many(calls)
        await came(SLOTS)
        worker.quit("asked to end quickly")
    for each in ids:
        assert await stage.story(each) == ["JobDispatched", "JobStarted", "JobReleased"]
    assert (await stage.depth()).waiting == SLOTS


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The exit codes of a process that would end."""
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    return codes


@pytest.mark.parametrize("function", [refuse_to_end, refuse_plainly])
async def test_one_that_does_not_stop_ends_the_process_once_the_others_have_ended(
    stage: Stage, function: JobType[Any, Any], exits: list[int]
) -> None:
    async with stage.worker() as worker:
        ids = await stage.client.dispatch_many([tell(number=n) for n in range(5)])
        stays = await stage.client.dispatch(stay(name="other"))
        await came(1)
        stubborn = await stage.client.dispatch(function())
        await once(lambda: worker.stopping)
        later = await stage.client.dispatch(tell(number=9))
        assert ("stubborn", "refused") in HALL.left
        # not recorded before its process ends: it must not be retried while it still runs
        assert (await stage.client.job(stubborn)).state is State.RUNNING
        await stage.client.cancel(stays)
        await once(lambda: exits)
        view = await stage.client.job(stubborn)
        assert view.error is not None
        assert view.error.kind == "timeout"
        for each in ids:
            assert (await stage.ended(each)).state is State.COMPLETED
        assert (await stage.client.job(later)).state is State.WAITING
        HALL.open.set()
    assert exits == [UNRESPONSIVE]


@pytest.mark.parametrize("drain_seconds", [0.0, 0.1])
async def test_the_others_are_given_back_when_they_take_too_long(
    exits: list[int], drain_seconds: float
) -> None:
    stage = Stage(with_slots(drain_seconds=drain_seconds))
    async with stage.worker():
        calls = [(stay if n % 2 else stay_put)(name=str(n)) for n in range(6)]
        others = await stage.client.dispatch_many(calls)
        await came(6)
        stubborn = await stage.client.dispatch(refuse_to_end())
        await once(lambda: exits)
        for each in others:
            assert (await stage.story(each))[-1] == "JobReleased"
        assert (await stage.client.job(stubborn)).state is State.DEAD
        HALL.open.set()
    assert exits == [UNRESPONSIVE]


async def test_those_that_a_blocked_loop_keeps_from_running_are_given_back(
    exits: list[int],
) -> None:
    stage = Stage(with_slots(drain_seconds=0.1))
    async with stage.worker():
        beside = await stage.client.dispatch(stay(name="beside"))
        await came(1)
        blocking = await stage.client.dispatch(block())
        await came(2)
        behind = await stage.client.dispatch(stay(name="behind"))
        plain = await stage.client.dispatch(stay_put(name="plain"))
        await came(3)
        await once(lambda: exits)
        for each in (beside, behind, plain):
            assert (await stage.story(each))[-1] == "JobReleased"
        assert (await stage.client.job(blocking)).state is State.DEAD
        assert "behind" not in HALL.came
        HALL.open.set()
    assert exits == [UNRESPONSIVE]


# --- a lost worker --------------------------------------------------------------------------------
class LostWorker:
    """One that used all its slots, as far as its jobs' events say."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self._job_log = stage, JobLog(stage.bus, stage.subjects, "worker/gone.w")
        self._held: dict[str, str] = {}

    async def take(self, *names: str) -> list[str]:
        ids = await self._stage.client.dispatch_many([stay(name=name) for name in names])
        await self._start(ids)
        return ids

    async def _start(self, ids: list[str]) -> None:
        taken = await self._stage.bus.puller(QUEUE).fetch(len(ids), 0)
        for delivery in taken:
            job_id = delivery.headers[queue_messages.JOB]
            self._held[job_id] = delivery.ack_subject
            started = JobStarted(
                job_id=job_id, queue=QUEUE, attempt=1, host="gone", worker="w", slots=SLOTS,
                message=delivery.sequence,
            )  # fmt: skip
            await self._stage.bus.append(self._job_log.outgoing(started, None))

    async def recover(self, *, together: int, losses: int = 1) -> None:
        """What its executor records; taken and lost so often in a row."""
        for loss in range(losses):
            if loss:
                await self._start(list(self._held))
            for job_id in self._held:
                recovered = JobRecovered(job_id=job_id, reason="w was killed", together=together)
                await self._stage.bus.append(self._job_log.outgoing(recovered, None))
            await self._stage.bus.give_back(list(self._held.values()))


async def test_jobs_of_a_host_that_vanished_run_beside_any_others_once_more() -> None:
    """Where no executor is left to say which jobs ran, all slots count as used."""
    clock = [time.time()]
    made = with_slots(claim_seconds=2)
    stage = Stage(made, MemoryBus(settings=made, now=lambda: clock[0]))
    [job_id] = await LostWorker(stage).take("a")
    clock[0] += 3
    stage.bus.tick()
    async with stage.worker():
        await came(1)
        events = [event for _, event in (await stage.client.job(job_id)).events]
        [recovered] = [event for event in events if isinstance(event, JobRecovered)]
        assert recovered.together == SLOTS
        record = (await stage.client.job(job_id)).record
        assert (record.lost_workers, record.lost_together, record.lost_beside) == (0, 1, SLOTS)
        others = [await stage.client.dispatch(stay(name=str(n))) for n in range(5)]
        await came(6)
        HALL.open.set()
        for each in (job_id, *others):
            assert (await stage.ended(each)).state is State.COMPLETED


async def test_after_the_first_shared_loss_all_run_again_at_once(stage: Stage) -> None:
    gone = LostWorker(stage)
    ids = await gone.take(*(str(number) for number in range(SLOTS)))
    await gone.recover(together=SLOTS)
    async with stage.worker():
        await came(SLOTS)
        HALL.open.set()
        for each in ids:
            assert (await stage.ended(each)).state is State.COMPLETED


async def test_a_suspect_without_room_is_not_started_and_keeps_no_other_job_waiting(
    stage: Stage,
) -> None:
    gone = LostWorker(stage)
    suspects = await gone.take(*(f"suspect{number}" for number in range(4)))
    await gone.recover(together=4, losses=2)
    async with stage.worker():
        await came(2)
        plain = await stage.client.dispatch_many([stay(name=f"plain{n}") for n in range(5)])
        await came(7)
        begun = [each for each in suspects if await _starts(stage, each) == 3]
        assert len(begun) == 2
        async with stage.worker():  # which has room for the others
            await came(9)
            assert [await _starts(stage, each) for each in suspects] == [3] * 4
            HALL.open.set()
            for each in (*plain, *suspects):
                assert (await stage.ended(each)).state is State.COMPLETED
    assert len(HALL.came) == len(plain) + len(suspects), "each start ran"


async def test_suspects_that_find_no_other_worker_run_one_group_after_another(
    stage: Stage,
) -> None:
    gone = LostWorker(stage)
    suspects = await gone.take(*(f"suspect{number}" for number in range(4)))
    await gone.recover(together=2, losses=2)
    async with stage.worker():
        await came(1)
        HALL.open.set()
        for each in suspects:
            assert (await stage.ended(each)).state is State.COMPLETED
    assert HALL.most == 1


async def _starts(stage: Stage, job_id: str) -> int:
    return (await stage.story(job_id)).count("JobStarted")


async def test_jobs_whose_claims_lapsed_are_another_worker_s_and_stop_here() -> None:
    clock = [time.time()]
    made = with_slots(claim_seconds=2)
    stage = Stage(made, MemoryBus(settings=made, now=lambda: clock[0]))
    async with stage.worker() as frozen:
        calls = [(stay if n % 2 else stay_put)(name=str(n)) for n in range(SLOTS)]
        ids = await stage.client.dispatch_many(calls)
        await came(SLOTS)
        frozen.pause()
        clock[0] += 3
        stage.bus.tick()
        async with stage.worker():
            await once(lambda: len(HALL.left) == SLOTS)  # in the first worker
            assert {how for _, how in HALL.left} == {"cancelled"}
            HALL.open.set()
            for each in ids:
                view = await stage.ended(each)
                assert (view.state, view.record.lost_together) == (State.COMPLETED, 1)
    for each in ids:
        story = await stage.story(each)
        assert (story.count("JobRecovered"), story.count("JobCompleted")) == (1, 1)


async def _claimed(stage: Stage, count: int) -> bool:
    return (await stage.depth()).claimed == count


async def _ended(stage: Stage, ids: list[str], count: int) -> bool:
    return sum([(await stage.client.job(each)).state.ended for each in ids]) >= count
