"""Invariant 3: two jobs of an exclusive queue never run at the same time."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from tests.integration.crew import Crew, Worker
from tests.integration.guarded_jobs import VAULT, moments, occupy, overlaps
from tests.integration.partition import Wire
from tests.waiting import eventually

from penstock.jobs.lifecycle import State

LEASE_SECONDS = 1.5
TABLES = {
    "pools": {VAULT: {"kind": "exclusive", "min_workers": 2, "max_workers": 2, "tries": 1}},
    "jobs": {
        "modules": ["tests.integration.guarded_jobs"],
        "exclusive_lease_seconds": LEASE_SECONDS,
        "max_lost_workers": 50,
    },
    "nats": {"request_timeout_seconds": 1},
}
exclusively = pytest.mark.parametrize("crew", [TABLES], indirect=True)


def path(crew: Crew) -> str:
    return str(crew.folder / "moments")


async def running(crew: Crew, name: str) -> Worker:
    """The worker that runs a job now."""
    begun = await eventually(lambda: [m for m in moments(path(crew)) if m.name == name], 15)
    [worker] = [each for each in crew.workers if each.pid == begun[-1].pid]
    return worker


async def dispatch(crew: Crew, name: str, seconds: float, *, stubborn: bool = False) -> str:
    call = occupy(path=path(crew), name=name, seconds=seconds, stubborn=stubborn)
    return await crew.client.dispatch(call)


@asynccontextmanager
async def behind_a_wire(crew: Crew) -> AsyncIterator[tuple[Wire, Worker]]:
    """A worker whose connection can be cut."""
    wire = await Wire(crew.settings.nats.url).open()
    usual = crew.settings
    nats = msgspec.structs.replace(usual.nats, url=wire.url)
    crew.settings = msgspec.structs.replace(usual, nats=nats)
    try:
        worker = crew.hire(VAULT)
        crew.settings = usual
        yield wire, worker
    finally:
        wire.heal()
        await wire.close()


def nothing_overlapped(crew: Crew) -> None:
    found = moments(path(crew))
    assert found
    assert overlaps(found) == []


@exclusively
async def test_of_two_workers_one_works(crew: Crew) -> None:
    crew.hire(VAULT), crew.hire(VAULT)
    ids = [await dispatch(crew, f"j{n}", 0.05) for n in range(10)]
    for each in ids:
        assert (await crew.ended(each)).state is State.COMPLETED
    assert len({moment.pid for moment in moments(path(crew))}) == 1
    nothing_overlapped(crew)


@exclusively
async def test_a_worker_that_ends_hands_over_at_once(crew: Crew) -> None:
    crew.hire(VAULT), crew.hire(VAULT)
    await crew.ended(await dispatch(crew, "a", 0.02))
    first = await running(crew, "a")
    first.signal(signal.SIGTERM)
    assert await first.ended() == 0
    asked = time.monotonic()
    await crew.ended(await dispatch(crew, "b", 0.02))
    assert await running(crew, "b") is not first
    assert time.monotonic() - asked < LEASE_SECONDS / 2


@exclusively
async def test_the_heir_of_a_killed_worker_waits_for_the_lease(crew: Crew) -> None:
    crew.hire(VAULT), crew.hire(VAULT)
    job_id = await dispatch(crew, "a", 0.5)
    victim = await running(crew, "a")
    victim.signal(signal.SIGKILL)
    killed_at = time.monotonic()
    view = await crew.ended(job_id)
    assert view.record.worker != victim.name
    first = min(m.at for m in moments(path(crew)) if m.pid != victim.pid)
    assert first - killed_at > LEASE_SECONDS / 2
    nothing_overlapped(crew)


@exclusively
async def test_a_stopped_worker_is_ended_before_its_heir_begins(crew: Crew) -> None:
    """Nothing of the process runs while it is stopped; the kernel ends it all the same."""
    crew.hire(VAULT), crew.hire(VAULT)
    job_id = await dispatch(crew, "a", 5.0, stubborn=True)
    stopped = await running(crew, "a")
    stopped.signal(signal.SIGSTOP)
    await eventually(lambda: {m.pid for m in moments(path(crew))} - {stopped.pid}, 15, "an heir")
    assert stopped.exit_code == -signal.SIGKILL
    await crew.client.cancel(job_id)
    nothing_overlapped(crew)


@exclusively
async def test_a_stopped_worker_without_a_job_keeps_none_from_running(crew: Crew) -> None:
    crew.hire(VAULT), crew.hire(VAULT)
    await crew.ended(await dispatch(crew, "a", 0.02))
    (await running(crew, "a")).signal(signal.SIGSTOP)
    await crew.ended(await dispatch(crew, "b", 0.02))
    nothing_overlapped(crew)


@exclusively
async def test_a_worker_that_is_cut_off_lets_go_before_its_heir_begins(crew: Crew) -> None:
    async with behind_a_wire(crew) as (wire, cut_off):
        job_id = await dispatch(crew, "a", 1.0)
        assert await running(crew, "a") is cut_off
        heir = crew.hire(VAULT)
        wire.cut()
        view = await crew.ended(job_id)
        assert view.record.worker == heir.name
        assert cut_off.exit_code is None  # it was interrupted, and waits
        nothing_overlapped(crew)
        wire.heal()
        heir.signal(signal.SIGKILL)
        await crew.ended(await dispatch(crew, "b", 0.02))
        assert await running(crew, "b") is cut_off
    nothing_overlapped(crew)


@exclusively
async def test_a_stubborn_job_that_is_cut_off_ends_with_its_worker(crew: Crew) -> None:
    async with behind_a_wire(crew) as (wire, cut_off):
        job_id = await dispatch(crew, "a", 4.0, stubborn=True)
        assert await running(crew, "a") is cut_off
        heir = crew.hire(VAULT)
        wire.cut()
        await eventually(lambda: heir.pid in {m.pid for m in moments(path(crew))}, 15, "an heir")
        assert cut_off.exit_code == -signal.SIGKILL
        await crew.client.cancel(job_id)
    nothing_overlapped(crew)


@exclusively
async def test_a_short_cut_disturbs_nobody(crew: Crew) -> None:
    async with behind_a_wire(crew) as (wire, worker):
        job_id = await dispatch(crew, "a", 1.0)
        await running(crew, "a")
        crew.hire(VAULT)
        wire.cut()
        cut_at = len(moments(path(crew)))
        await eventually(lambda: len(moments(path(crew))) > cut_at + 30, 5, "some more work")
        wire.heal()
        view = await crew.ended(job_id)
        assert (view.record.worker, view.attempts) == (worker.name, 1)
    nothing_overlapped(crew)


@pytest.mark.parametrize("seed", [1, 2])
@exclusively
async def test_whoever_dies_and_whenever_none_overlap(crew: Crew, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(3):
        crew.hire(VAULT)
    ids = [
        await dispatch(crew, f"j{n}", chance.uniform(0.01, 0.3), stubborn=chance.random() < 0.3)
        for n in range(25)
    ]
    for _ in range(5):
        await _harm(crew, chance)
    for worker in crew.workers:
        worker.signal(signal.SIGCONT)
    for each in ids:
        assert (await crew.ended(each, 60)).state is State.COMPLETED
    nothing_overlapped(crew)


async def _harm(crew: Crew, chance: random.Random) -> None:
    """Whoever works now is harmed, when it has done some more."""
    before = len(moments(path(crew)))
    await eventually(lambda: len(moments(path(crew))) > before + 10, 15, "more work")
    at_work = moments(path(crew))[-1].pid
    for worker in crew.workers:
        if worker.pid == at_work:
            worker.signal(chance.choice([signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM]))
    crew.hire(VAULT)


def test_the_oracle_sees_an_overlap(tmp_path: Path) -> None:
    file = tmp_path / "moments"
    file.write_text("a 1 1.0\nb 2 1.5\na 1 2.0\nb 2 3.0\n")
    assert len(overlaps(moments(str(file)))) == 1
