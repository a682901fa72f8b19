"""Jobs that run at most once, and results that are not stored or that expire."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.component.worker.given import QUEUE, WITHIN, Stage, once, settings

from penstock.bus.protocol import BusRefused, Outgoing
from penstock.events.job import JobStarted
from penstock.jobs import Step, awaiting, job, registry
from penstock.jobs.errors import NoResult
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import State
from penstock.jobs.workflows.graph_order import BadGraph
from penstock.testing.memory.bus import MemoryBus

_began = threading.Event()


@job(queue=QUEUE, at_most_once=True)
def charge(seconds: float) -> None:
    _began.set()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)


@job(queue=QUEUE, store_result=False)
def quiet() -> int:
    return 7


@job(queue=QUEUE, store_result=False)
def wrong() -> int:
    return "seven"  # type: ignore[return-value]


@job(queue=QUEUE, result_expires_seconds=60)
def brief() -> list[int]:
    return [1, 2]


@job(queue=QUEUE)
def take(number: int) -> None: ...


@pytest.fixture(scope="module", autouse=True)
def known() -> Iterator[None]:
    kinds = (charge, quiet, wrong, brief, take)
    registry.REGISTRY.update({kind.name: kind for kind in kinds})
    yield
    for kind in kinds:
        del registry.REGISTRY[kind.name]


# --- at most once ---------------------------------------------------------------------------------
async def test_interrupted_by_the_platform_it_is_dead_and_not_given_back() -> None:
    stage = Stage(settings())
    _began.clear()
    async with stage.worker() as worker:
        job_id = await stage.client.dispatch(charge(seconds=WITHIN))
        await once(_began.is_set, "a job that runs")
        worker.quit("the host ends")
        view = await stage.ended(job_id)
    assert (view.state, view.error.kind) == (State.DEAD, "at-most-once")
    assert "may have done" in view.error.message
    assert (await stage.client.dead.get(job_id)).content.error.kind == "at-most-once"
    assert await stage.story(job_id) == ["JobDispatched", "JobStarted", "JobDead"]


async def test_after_the_loss_of_its_worker_it_is_dead() -> None:
    """Found by the worker that is given its message again, where no executor reported the loss."""
    stage = Stage(settings())
    job_id = await stage.client.dispatch(charge(seconds=0))
    [delivery] = await stage.messages()
    record = (await stage.client.job(job_id)).record
    started = JobStarted(
        job_id=job_id,
        queue=QUEUE,
        attempt=1,
        host="h",
        worker="lost",
        message=delivery.sequence,
        max_lost=1,
        at_most_once=True,
    )
    assert await JobLog(stage.bus, stage.subjects).append_if(record, started)
    async with stage.worker():
        await stage.bus.give_back([delivery.ack_subject])
        view = await stage.ended(job_id)
    assert (view.state, view.error.kind) == (State.DEAD, "at-most-once")


async def test_it_runs_and_has_one_try() -> None:
    stage = Stage(settings(tries=5))
    async with stage.worker():
        view = await stage.ended(await stage.client.dispatch(charge(seconds=0)))
    assert (view.state, view.record.tries, view.record.max_lost) == (State.COMPLETED, 1, 1)
    with pytest.raises(ValueError, match="allows one try"):
        job(at_most_once=True, tries=2)(lambda: None)


# --- results --------------------------------------------------------------------------------------
async def test_a_result_that_is_not_stored_is_an_error_where_it_is_read() -> None:
    stage = Stage(settings())
    async with stage.worker():
        job_id = await stage.client.dispatch(quiet())
        view = await stage.ended(job_id)
        failed = await stage.ended(await stage.client.dispatch(wrong()))
    assert (view.state, view.record.result) == (State.COMPLETED, b"")
    with pytest.raises(NoResult, match=rf"{job_id}.*store_result=False"):
        view.result  # noqa: B018
    assert failed.error.kind == "wrong-result"  # it is checked all the same


async def test_a_result_that_expires_lies_apart_from_the_event() -> None:
    now = [time.time()]
    stage = Stage(settings())
    stage.bus._broker.now = lambda: now[0]  # type: ignore[method-assign]
    async with stage.worker():
        job_id = await stage.client.dispatch(brief())
        view = await stage.ended(job_id)
    assert view.result == [1, 2]
    [completed] = [event for _, event in view.events if event.name == "JobCompleted"]  # type: ignore[union-attr]
    assert completed.result == b""  # type: ignore[union-attr]
    assert stage.bus.stored(stage.subjects.keys_stream, stage.subjects.key("result", "*"))

    now[0] += timedelta(minutes=2).total_seconds()
    later = await stage.client.job(job_id)
    with pytest.raises(NoResult, match="result_expires_seconds"):
        later.result  # noqa: B018


class Refusing:
    """A broker that refuses to store what lies apart."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def append(self, message: Outgoing) -> int:
        if ".keys.result." in message.subject:
            raise BusRefused("no room")
        return await self._bus.append(message)


async def test_where_it_cannot_lie_apart_it_is_kept_in_the_event() -> None:
    stage = Stage(settings())
    async with stage.worker(Refusing(stage.bus.client())):  # type: ignore[arg-type]
        view = await stage.ended(await stage.client.dispatch(brief()))
    assert (view.result, view.record.result_until) == ([1, 2], None)


async def test_a_step_cannot_take_what_is_not_stored() -> None:
    stage = Stage(settings())
    with pytest.raises(BadGraph, match="store_result=False"):
        await stage.client.graphs.chain([quiet(), awaiting(take, "number")])
    await stage.client.graphs.dispatch({"a": Step(quiet()), "b": Step(take(number=1), after=["a"])})


@pytest.mark.parametrize(
    "terms",
    [
        {"store_result": False, "result_expires_seconds": 5},
        {"result_expires_seconds": 0.5},
        {"result_expires_seconds": 1e9},
        {"result_expires_seconds": -1},
    ],
)
def test_terms_that_cannot_be_are_refused(terms: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"expire|result_expires_seconds"):
        job(**terms)(lambda: None)
