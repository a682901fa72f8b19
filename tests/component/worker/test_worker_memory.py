"""How much memory an attempt used: its own peak, not that of those before it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.component.worker.given import QUEUE, Stage, settings

from penstock.events.job import JobCompleted, JobFailed
from penstock.jobs import Call, job, registry

MEGABYTE = 1_000_000
LARGE = 200 * MEGABYTE


@job(queue=QUEUE)
def use(bytes_used: int, fails: bool = False) -> None:
    held = bytearray(bytes_used)
    time.sleep(0.02)
    if fails:
        raise ValueError(len(held))


@job(queue=QUEUE)
def nothing() -> None: ...


@pytest.fixture(scope="module", autouse=True)
def known() -> Iterator[None]:
    registry.REGISTRY.update({each.name: each for each in (use, nothing)})
    yield
    for each in (use, nothing):
        del registry.REGISTRY[each.name]


async def test_each_attempt_has_a_peak_of_its_own_also_one_that_failed() -> None:
    stage = Stage(settings())
    async with stage.worker():

        async def peak(call: Call) -> int:
            view = await stage.ended(await stage.client.dispatch(call))
            [bytes_used] = [
                event.peak_memory_bytes
                for _, event in view.events
                if isinstance(event, JobCompleted | JobFailed)
            ]
            return bytes_used

        small = await peak(use(bytes_used=MEGABYTE))
        large = await peak(use(bytes_used=LARGE))
        after = await peak(use(bytes_used=MEGABYTE))
        failed = await peak(use(bytes_used=LARGE, fails=True))
        short = await peak(nothing())
    assert min(large, failed) > max(small, after) + LARGE / 2
    assert small > 10 * MEGABYTE
    assert short == 0
