"""A worker's loop on the bus in memory: what it does with jobs, and with a line that fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.component.worker.given import QUEUE, Gate, Stage, once, settings
from tests.component.worker.unreliable import Unreliable

from penstock.bus.protocol import BusRefused
from penstock.jobs import Backoff, Call, Client, Context, JobType, job, registry
from penstock.jobs.lifecycle import State
from penstock.testing.memory.bus import MemoryBus
from penstock.worker.claiming.intake import Intake
from penstock.worker.state import BROKEN

GATES: dict[str, Gate] = {}
AT_ONCE = Backoff(first_seconds=0)


@job(queue=QUEUE)
def add(x: int, y: int = 1) -> int:
    return x + y


@job(queue=QUEUE)
async def add_soon(context: Context, x: int) -> tuple[int, str]:
    await asyncio.sleep(0)
    return x + context.attempt, context.job_id


@job(queue=QUEUE)
def pass_gate(gate: str, name: str = "") -> str:
    GATES[gate].pass_through(name)
    return name


@job(queue=QUEUE)
def pass_on(context: Context, x: int) -> str:
    return context.dispatch(add(x=x), delay=0)


@job(queue=QUEUE, backoff=AT_ONCE)
def fail(context: Context, times: int, how: str = "oops") -> int:
    if context.attempt <= times:
        raise ValueError(how)
    return context.attempt


@job(queue=QUEUE, tries=3, backoff=AT_ONCE)
def large(size: int) -> bytes:
    return b"x" * size


@job(queue=QUEUE, tries=3, backoff=AT_ONCE)
def miscounted(value: Any) -> list[int]:
    return value  # type: ignore[no-any-return]


class Mute(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


@job(queue=QUEUE)
def fail_silently() -> None:
    raise Mute


JOBS: list[JobType[Any, Any]] = [
    add, add_soon, pass_gate, pass_on, fail, large, fail_silently, miscounted,
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def known() -> Iterator[None]:
    registry.REGISTRY.update({each.name: each for each in JOBS})
    yield
    for each in JOBS:
        registry.REGISTRY.pop(each.name, None)


@pytest.fixture
def gate() -> Iterator[Callable[[str], Gate]]:
    def make(name: str) -> Gate:
        return GATES.setdefault(name, Gate())

    yield make
    for each in GATES.values():
        each.open()
    GATES.clear()


@pytest.fixture
async def stage() -> Stage:
    return Stage(settings())


async def run(stage: Stage, call: Call) -> Any:
    return await stage.ended(await stage.client.dispatch(call))


async def warm(stage: Stage) -> None:
    """Lets the worker see that jobs are short here, so that it claims ahead."""
    for job_id in await stage.client.dispatch_many([add(x=1)] * 60):
        await stage.ended(job_id)


# --- running --------------------------------------------------------------------------------------
async def test_jobs_run_and_tell_their_results(stage: Stage) -> None:
    async with stage.worker():
        assert (await run(stage, add(x=1))).result == 2
        view = await run(stage, add_soon(x=41))
        assert view.result == (42, view.record.id)
    await stage.emptied()


async def test_a_job_dispatches_another(stage: Stage) -> None:
    async with stage.worker():
        other = (await run(stage, pass_on(x=5))).result
        assert (await stage.ended(other)).result == 6


async def test_many_jobs_each_run_once(stage: Stage) -> None:
    async with stage.worker(), stage.worker():
        ids = await stage.client.dispatch_many([add(x=n) for n in range(500)])
        assert [(await stage.ended(each)).result for each in ids] == list(range(1, 501))
    assert {tuple(await stage.story(each)) for each in ids} == {
        ("JobDispatched", "JobStarted", "JobCompleted")
    }


async def test_a_failed_job_goes_again() -> None:
    stage = Stage(settings(tries=3))
    async with stage.worker():
        view = await run(stage, fail(times=2))
    assert (view.state, view.result, view.attempts) == (State.COMPLETED, 3, 3)
    attempt = ["JobStarted", "JobFailed", "JobRetrying"]
    assert await stage.story(view.record.id) == [
        "JobDispatched", *attempt, *attempt, "JobStarted", "JobCompleted"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (fail(times=9), "builtins.ValueError"),
        (fail(times=9, how="\\ud800"), "builtins.ValueError"),
        (fail_silently(), f"{__name__}.Mute"),
        (large(size=600_000), "result-too-large"),
    ],
)
async def test_what_cannot_be_recorded_as_it_is_ends_only_its_job(
    stage: Stage, call: Call, kind: str
) -> None:
    async with stage.worker():
        view = await run(stage, call)
        assert (view.state, view.error.kind) == (State.DEAD, kind)
        assert (await run(stage, add(x=1))).result == 2
    await stage.emptied()


@pytest.mark.parametrize("call", [large(size=600_000), miscounted(value="many")])
async def test_a_result_that_cannot_be_kept_is_final(stage: Stage, call: Call) -> None:
    """The work was done; another attempt would do it once more, for the same result."""
    async with stage.worker():
        view = await run(stage, call)
        assert (view.state, view.attempts) == (State.DEAD, 1)


async def test_a_result_of_another_type_than_declared_is_named_with_both(stage: Stage) -> None:
    async with stage.worker():
        view = await run(stage, miscounted(value=[1, "x"]))
        assert view.error.kind == "wrong-result"
        assert view.error.message == (
            f"{__name__}.miscounted declares the result list[int] and returned list: "
            "Expected `int`, got `str` - at `$[1]`"
        )
        assert (await run(stage, miscounted(value=(1, 2)))).result == [1, 2]


# --- a long job -----------------------------------------------------------------------------------
async def test_what_was_done_before_a_long_job_is_told_while_that_runs(
    stage: Stage, gate: Callable[[str], Gate]
) -> None:
    async with stage.worker():
        await warm(stage)
        gate("long")
        calls = [*[add(x=n) for n in range(5)], pass_gate(gate="long")]
        *short, long = await stage.client.dispatch_many(calls)
        for each in short:
            assert (await stage.ended(each)).state is State.COMPLETED
        assert (await stage.client.job(long)).state is State.RUNNING
        gate("long").open()
        assert (await stage.ended(long)).state is State.COMPLETED


async def test_nothing_is_held_behind_a_long_job(stage: Stage, gate: Callable[[str], Gate]) -> None:
    async with stage.worker() as held_up:
        await warm(stage)
        gate("long")
        long, *behind = await stage.client.dispatch_many(
            [pass_gate(gate="long"), *[add(x=n) for n in range(30)]]
        )
        await stage.reached(behind[-1], State.WAITING)
        async with stage.worker():
            for each in behind:
                assert (await stage.ended(each)).state is State.COMPLETED
            more = await stage.client.dispatch_many([add(x=n) for n in range(30)])
            stories = [(await stage.ended(each)).record for each in more]
        held_up_source = (await stage.client.job(long)).record.worker
        assert held_up_source not in {record.worker for record in stories}
        assert not held_up.stopping
        gate("long").open()


async def test_short_jobs_of_one_queue_have_no_job_of_another_held_behind_a_long_one(
    gate: Callable[[str], Gate],
) -> None:
    stage = Stage(settings(queues=("mails", QUEUE)))
    async with stage.worker():
        mails = await stage.client.dispatch_many([add(x=n) for n in range(50)], queue="mails")
        for job_id in mails:
            await stage.ended(job_id)
        gate("long")
        _, *behind = await stage.client.dispatch_many([pass_gate(gate="long")] * 5)
        await once(lambda: gate("long").came)
        for job_id in behind:
            assert await stage.story(job_id) == ["JobDispatched"]
        gate("long").open()
        await stage.ended(behind[-1])


async def test_behind_a_queue_that_is_not_known_nothing_is_claimed_ahead() -> None:
    """Its jobs come first, whenever they come."""
    bus = MemoryBus(settings=settings(queues=("mails", QUEUE)))
    await Client(bus, prefix="p").dispatch_many([add(x=n) for n in range(5)])
    intake = Intake(bus, ("mails", QUEUE))
    assert await intake.take({"mails": 0, QUEUE: 5}.__getitem__, wait=False) == []
    assert len(await intake.take({"mails": 1, QUEUE: 5}.__getitem__, wait=False)) == 5


# --- ending and pausing ---------------------------------------------------------------------------
async def test_an_ending_worker_finishes_its_job_and_gives_the_others_back(
    gate: Callable[[str], Gate],
) -> None:
    stage = Stage(settings(claim_ahead_seconds=1))
    async with stage.worker() as ending:
        await warm(stage)
        gate("g")
        ids = await stage.client.dispatch_many([pass_gate(gate="g"), add(x=1), add(x=2)])
        await once(lambda: gate("g").came)
        await stage.started(ids[2])
        ending.stop("asked to end")
        for each in ids[1:]:
            await stage.reached(each, State.WAITING)
        assert (await stage.client.job(ids[0])).state is State.RUNNING
        gate("g").open()
    assert [(await stage.client.job(each)).state for each in ids] == [
        State.COMPLETED, State.WAITING, State.WAITING
    ]  # fmt: skip
    async with stage.worker():
        for each in ids:
            assert (await stage.ended(each)).attempts == 1
    assert await stage.story(ids[2]) == [
        "JobDispatched", "JobStarted", "JobReleased", "JobStarted", "JobCompleted"
    ]  # fmt: skip


async def test_a_job_won_while_ending_is_given_back() -> None:
    """The answer comes after the loop was left: the job was nobody's until its claim lapsed."""
    bus = Unreliable(settings())
    bus.held_up["JobStarted"] = asyncio.Event()
    good = Stage(settings(), bus.client())
    async with good.worker(bus) as ending:
        job_id = await good.client.dispatch(add(x=1))

        await once(lambda: _claimed(good, 1))
        ending.stop("asked to end")
        await asyncio.sleep(0)
        bus.held_up.pop("JobStarted").set()
    assert await good.story(job_id) == ["JobDispatched", "JobStarted", "JobReleased"]
    assert (await good.depth()).waiting == 1


async def test_a_paused_worker_takes_nothing_until_it_is_resumed(stage: Stage) -> None:
    async with stage.worker() as worker:
        await run(stage, add(x=1))
        worker.pause()
        job_id = await stage.client.dispatch(add(x=2))
        async with stage.worker():
            assert (await stage.ended(job_id)).result == 3
        waiting = await stage.client.dispatch(add(x=3))
        assert (await stage.client.job(waiting)).state is State.WAITING
        worker.resume()
        assert (await stage.ended(waiting)).result == 4


# --- tags -----------------------------------------------------------------------------------------
async def test_a_job_that_is_tagged_while_it_waits_runs_and_ends_is_run_once(
    stage: Stage, gate: Callable[[str], Gate]
) -> None:
    gate("g")
    job_id = await stage.client.dispatch(pass_gate(gate="g"))
    await stage.client.tags.add(job_id, "waits")
    async with stage.worker():
        await stage.started(job_id)
        await stage.client.tags.add(job_id, "runs")
        await stage.client.tags.add(job_id, "runs")
        gate("g").open()
        assert (await stage.ended(job_id)).state is State.COMPLETED
    await stage.client.tags.add(job_id, "ended")
    view = await stage.client.job(job_id)
    assert (view.state, view.record.tags) == (State.COMPLETED, ("waits", "runs", "ended"))
    story = await stage.story(job_id)
    assert (story.count("JobStarted"), story.count("JobTagged")) == (1, 3)
    await stage.emptied()


async def test_a_tagged_job_that_fails_is_tried_again() -> None:
    stage = Stage(settings(tries=2))
    job_id = await stage.client.dispatch(fail(times=1), delay=0.01)
    await stage.client.tags.add(job_id, "delayed")
    async with stage.worker():
        assert (await stage.ended(job_id)).result == 2
    await stage.emptied()


# --- cancelling -----------------------------------------------------------------------------------
async def test_a_job_claimed_ahead_and_cancelled_never_runs(
    gate: Callable[[str], Gate],
) -> None:
    stage = Stage(settings(claim_ahead_seconds=1))
    async with stage.worker():
        await warm(stage)
        gate("g")
        first, second, third = await stage.client.dispatch_many(
            [pass_gate(gate="g", name=name) for name in "123"]
        )
        await stage.started(third)
        await stage.client.cancel(second)
        await once(lambda: _claimed(stage, 2))
        gate("g").open()
        assert (await stage.ended(first)).state is State.COMPLETED
        assert (await stage.ended(third)).state is State.COMPLETED
    assert gate("g").came == ["1", "3"]
    assert (await stage.client.job(second)).state is State.CANCELLED
    await stage.emptied()


# --- a line that fails ----------------------------------------------------------------------------
@pytest.mark.parametrize("lost", ["JobStarted", "JobCompleted"])
async def test_lost_answers_lose_no_job(lost: str) -> None:
    bus = Unreliable(settings())
    stage = Stage(settings(), bus.client())
    async with stage.worker(bus):
        bus.lost_answers = [lost] * 3
        ids = await stage.client.dispatch_many([add(x=n) for n in range(20)])
        assert [(await stage.ended(each)).result for each in ids] == list(range(1, 21))
    for each in ids:
        assert (await stage.story(each)).count("JobCompleted") == 1
    await stage.emptied()


async def test_a_broker_that_refuses_starts_is_not_stormed() -> None:
    bus = Unreliable(settings())
    stage = Stage(settings(), bus.client())
    async with stage.worker(bus):
        bus.refused["JobStarted"] = BusRefused("the stream is full")
        job_id = await stage.client.dispatch(add(x=1))

        async def tried_again() -> bool:
            return (await stage.depth()).delivered >= 3

        began = asyncio.get_running_loop().time()
        await once(tried_again)
        assert asyncio.get_running_loop().time() - began > 0.3
        del bus.refused["JobStarted"]
        assert (await stage.ended(job_id)).result == 2


async def test_a_claim_that_lapsed_here_is_taken_up_again(gate: Callable[[str], Gate]) -> None:
    """A process that was frozen gets its own jobs again: they are not run twice in it."""
    clock = [time.time()]
    bus = MemoryBus(settings=settings(claim_ahead_seconds=1), now=lambda: clock[0])
    stage = Stage(settings(claim_ahead_seconds=1), bus)
    async with stage.worker() as worker:
        await warm(stage)
        gate("g")
        ids = await stage.client.dispatch_many([pass_gate(gate="g", name=n) for n in "123"])
        await stage.started(ids[2])
        clock[0] += 2
        bus.tick()
        worker.resume()  # makes it look for more
        await once(lambda: _redelivered(stage, 3))
        gate("g").open()
        for each in ids:
            assert (await stage.ended(each)).state is State.COMPLETED
    assert sorted(gate("g").came) == ["1", "2", "3"]
    await stage.emptied()


async def _claimed(stage: Stage, count: int) -> bool:
    return (await stage.depth()).claimed == count


async def _redelivered(stage: Stage, count: int) -> bool:
    return (await stage.depth()).redelivered == count


async def test_an_error_of_our_own_ends_the_worker_loudly(stage: Stage) -> None:
    class Broken(Unreliable):
        async def take(self, *_: Any) -> Any:
            raise ZeroDivisionError

    async with stage.worker(Broken(settings()), exit_code=BROKEN) as worker:
        await once(lambda: worker.stopping)
