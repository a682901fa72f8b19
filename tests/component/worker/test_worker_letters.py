"""The dead letter of a job that somebody retries between the event of its death and its letter."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from tests.component.worker.given import QUEUE, WITHIN, Stage, settings

from penstock.jobs import job, registry
from penstock.jobs.lifecycle import State
from penstock.testing.memory.bus import MemoryBus

_fails = [True]


@job(queue=QUEUE)
def fail_once() -> None:
    if _fails:
        _fails.clear()
        raise ValueError("no")


@pytest.fixture(scope="module", autouse=True)
def known() -> Iterator[None]:
    registry.REGISTRY[fail_once.name] = fail_once
    yield
    del registry.REGISTRY[fail_once.name]


class Frozen:
    """A worker's bus that answers late: what it was asked to store atomically is stored already."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
        self.stored, self.thawed = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def append_atomic(self, messages: Any) -> int:
        sequence = await self._bus.append_atomic(messages)
        self.stored.set()
        await self.thawed.wait()
        return sequence


async def test_no_letter_is_stored_of_a_job_that_lives_again() -> None:
    stage = Stage(settings())
    frozen = Frozen(stage.bus.client())
    async with stage.worker(frozen):  # type: ignore[arg-type]
        job_id = await stage.client.dispatch(fail_once())
        await asyncio.wait_for(frozen.stored.wait(), WITHIN)
        assert (await stage.client.job(job_id)).state is State.DEAD
        await stage.client.retry(job_id)
        frozen.thawed.set()
        view = await stage.ended(job_id)
    assert view.state is State.COMPLETED
    subject = stage.subjects.dead("*", "*")
    assert await stage.bus.last(stage.subjects.dead_stream, subject) is None


async def test_waiting_for_a_job_that_dies_ends_when_its_letter_is_there() -> None:
    _fails.append(True)
    stage = Stage(settings())
    frozen = Frozen(stage.bus.client())
    async with stage.worker(frozen):  # type: ignore[arg-type]
        job_id = await stage.client.dispatch(fail_once())
        waiting = asyncio.create_task(stage.client.wait(job_id, WITHIN))
        await asyncio.wait_for(frozen.stored.wait(), WITHIN)
        done, _ = await asyncio.wait([waiting], timeout=0.1)
        assert not done
        frozen.thawed.set()
        assert (await waiting).state is State.DEAD
        assert (await stage.client.dead.get(job_id)).content.error.message == "no"
