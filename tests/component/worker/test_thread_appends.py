"""Events that the threads of running workflows record: one round for those of one moment."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest
from tests.component.worker.given import QUEUE, Stage, settings
from tests.component.worker.unreliable import Unreliable

from penstock.bus.protocol import BusError, BusUnavailable, Outgoing, WrongSequence
from penstock.jobs import State, WorkflowContext, job, registry, workflow
from penstock.testing.memory.bus import MemoryBus
from penstock.worker.workflows.thread_appends import ThreadAppends

THREADS = 8
PATIENCE_SECONDS = 30.0


@job(queue="elsewhere")
def charge(order: int) -> int:
    return order


def rate(order: int) -> int:
    return order + 1


@workflow(queue=QUEUE)
async def fulfil(ctx: WorkflowContext, order: int) -> int:
    return int(await ctx.run(charge(order=await ctx.step("rate", rate, order))))


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    for kind in (charge, fulfil):
        registry.REGISTRY[kind.name] = kind
    yield
    for kind in (charge, fulfil):
        registry.REGISTRY.pop(kind.name, None)


class Rounds(MemoryBus):
    """Attributes: sizes: of the rounds so far; error: of the next ones, instead of answers."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.error: BusError | None = None

    async def append_many(self, messages: Sequence[Outgoing]) -> list[int | BusError]:
        self.sizes.append(len(messages))
        if self.error:
            raise self.error
        return await super().append_many(messages)


def append_from_threads(appends: ThreadAppends, bus: MemoryBus) -> list[asyncio.Future[object]]:
    """Has each thread append one event, and keeps the loop from running until all have."""
    pool, came = ThreadPoolExecutor(THREADS), threading.Semaphore(0)

    def append(number: int) -> object:
        message = Outgoing(bus.subjects.events("job", f"j{number}", "StepRecorded"), b"{}")
        came.release()
        return appends.append(Mock(), message)

    loop = asyncio.get_running_loop()
    answers = [loop.run_in_executor(pool, append, number) for number in range(THREADS)]
    for _ in answers:
        came.acquire()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(appends) < THREADS and time.monotonic() < deadline:
        time.sleep(0)
    pool.shutdown(wait=False)
    return answers


async def test_what_threads_append_at_one_moment_is_one_round() -> None:
    bus = Rounds()
    appends = ThreadAppends(bus, asyncio.get_running_loop())
    answers = await asyncio.gather(*append_from_threads(appends, bus))
    assert bus.sizes == [THREADS]
    assert sorted(map(str, answers)) == sorted(str(n) for n in range(1, THREADS + 1))


async def test_no_thread_waits_for_ever_where_the_broker_is_away() -> None:
    bus = Rounds()
    bus.error = BusUnavailable("away")
    appends = ThreadAppends(bus, asyncio.get_running_loop())
    answers = await asyncio.gather(*append_from_threads(appends, bus))
    assert answers == [bus.error] * THREADS


async def test_a_new_workflow_that_records_a_step_needs_no_task_of_its_own_in_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handed = Mock(side_effect=AssertionError("a coroutine was handed to the loop"))
    stage = Stage(settings())
    async with stage.worker():
        monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", handed)
        workflow_id = await stage.client.dispatch(fulfil(order=7))
        await stage.reached(workflow_id, State.SUSPENDED)
    handed.assert_not_called()


@pytest.mark.parametrize(
    "trouble", [BusUnavailable("no answer in time"), WrongSequence("subject", 1), None]
)
async def test_a_step_whose_append_is_not_answered_is_recorded_once(
    trouble: BusError | None,
) -> None:
    given = settings()
    bus = Unreliable(given)
    stage = Stage(given, bus=bus)
    if trouble:
        bus.refused["StepRecorded"] = trouble
    else:
        bus.lost_answers.append("StepRecorded")
    async with stage.worker(bus):
        workflow_id = await stage.client.dispatch(fulfil(order=7))
        if trouble:
            await stage.reached(workflow_id, State.RUNNING)
            bus.refused.clear()
        await stage.reached(workflow_id, State.SUSPENDED)
    assert (await stage.story(workflow_id)).count("StepRecorded") == 1
