"""A job that uses more memory or CPU time than its pool allows fails, and says so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.component.worker.given import QUEUE, WITHIN, Stage, once, settings

from penstock.config import Settings
from penstock.events.job import JobCompleted, JobFailed
from penstock.jobs import Backoff, Context, job, registry
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import State
from penstock.worker import upkeep
from penstock.worker.app import without_executor
from penstock.worker.loop import Worker
from penstock.worker.parts import assemble
from penstock.worker.running.memory_peak import resident_bytes

MEGABYTE = 1 << 20
KEPT: list[bytearray] = []


@job(queue=QUEUE, backoff=Backoff(first_seconds=0))
def hold(megabytes: int) -> int:
    held = bytearray(megabytes * MEGABYTE)
    while True:
        time.sleep(0.01)
        len(held)


@job(queue=QUEUE)
def leave(megabytes: int) -> None:
    KEPT.append(bytearray(megabytes * MEGABYTE))


@job(queue=QUEUE)
def wait_a_little(context: Context) -> None:
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        time.sleep(0.01)


@job(queue=QUEUE)
def compute() -> None:
    while True:
        sum(range(1000))


@job(queue=QUEUE)
def compute_a_little(fails: bool) -> None:
    began = time.thread_time()
    while time.thread_time() - began < 0.05:
        sum(range(1000))
    if fails:
        raise ValueError("as asked")


JOBS = (hold, leave, wait_a_little, compute, compute_a_little)


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    registry.REGISTRY.update({each.name: each for each in JOBS})
    yield
    KEPT.clear()
    for each in JOBS:
        del registry.REGISTRY[each.name]


def limited(tries: int = 1, **limits: Any) -> Settings:
    usual = settings(tries=tries)
    return replace(usual, pools={QUEUE: replace(usual.pools[QUEUE], **limits)})


def failures(view: JobView) -> list[JobFailed]:
    return [event for _, event in view.events if isinstance(event, JobFailed)]


async def test_a_job_that_uses_too_much_memory_fails_and_its_worker_ends() -> None:
    stage = Stage(limited(limit_job_memory_bytes=resident_bytes() + 100 * MEGABYTE))
    async with stage.worker() as worker:
        view = await stage.ended(await stage.client.dispatch(hold(megabytes=200)))
        await once(lambda: worker.stopping, "the worker ends")
    assert view.state is State.DEAD
    assert view.error.kind == "memory-limit"
    assert "limit_job_memory_bytes of its pool allows" in view.error.message
    assert worker.stopping.startswith("limit: a job's worker used")
    assert failures(view)[0].peak_memory_bytes > 200 * MEGABYTE


async def test_it_is_tried_again_by_another_worker_as_any_failure() -> None:
    stage = Stage(limited(tries=2, limit_job_memory_bytes=resident_bytes() + 100 * MEGABYTE))
    job_id = await stage.client.dispatch(hold(megabytes=200))
    async with stage.worker() as first:
        await once(lambda: first.stopping, "the first worker ends")
    async with stage.worker():
        view = await stage.ended(job_id)
    assert [event.error.kind for event in failures(view)] == ["memory-limit"] * 2
    assert view.state is State.DEAD


async def test_a_job_is_not_charged_with_what_an_earlier_one_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upkeep, "_TICK_SECONDS", 3600)  # it is looked at when the test says so
    given = settings(claim_seconds=60)
    limit = resident_bytes() + 100 * MEGABYTE
    pools = {QUEUE: replace(given.pools[QUEUE], limit_job_memory_bytes=limit)}
    stage = Stage(replace(given, pools=pools))
    parts = assemble(stage.bus.client(), without_executor(stage.settings, QUEUE))
    worker = Worker(parts)
    running = asyncio.create_task(worker.run())
    assert (await stage.ended(await stage.client.dispatch(leave(megabytes=200)))).state is (
        State.COMPLETED
    )
    job_id = await stage.client.dispatch(wait_a_little())
    await once(lambda: len(parts.running), "it runs")
    parts.upkeep.job_limits.check()
    await asyncio.wait_for(running, WITHIN)
    assert worker.stopping.startswith("limit: a job's worker used")
    assert (await stage.client.job(job_id)).state is State.WAITING
    assert "JobReleased" in await stage.story(job_id)


async def test_a_job_that_uses_too_much_cpu_time_fails_and_its_worker_goes_on() -> None:
    stage = Stage(limited(limit_job_cpu_seconds=0.3))
    async with stage.worker() as worker:
        idle = await stage.client.dispatch(wait_a_little())
        assert (await stage.ended(idle)).state is State.COMPLETED, "waiting takes no CPU time"
        view = await stage.ended(await stage.client.dispatch(compute()))
        assert not worker.stopping
    assert view.error.kind == "cpu-limit"
    assert failures(view)[0].cpu_seconds > 0.3


async def test_failed_attempts_report_their_cpu_time_as_others_do() -> None:
    stage = Stage(settings())
    async with stage.worker():
        for fails in (False, True):
            view = await stage.ended(await stage.client.dispatch(compute_a_little(fails=fails)))
            [used] = [
                event.cpu_seconds
                for _, event in view.events
                if isinstance(event, JobCompleted | JobFailed)
            ]
            assert used >= 0.05
