"""Checkpoints on a real broker: workers are killed, frozen and deposed."""

from __future__ import annotations

import signal

import msgspec
import pytest
from tests.integration.counted_jobs import count_up
from tests.integration.crew import Crew
from tests.waiting import eventually

from penstock.bus.protocol import WrongSequence
from penstock.jobs import Call
from penstock.jobs.errors import PayloadTooLarge
from penstock.jobs.running.checkpoints import Checkpoint, Checkpoints

WITHIN = 30.0
MODULES = {"modules": ["tests.integration.sample_jobs", "tests.integration.counted_jobs"]}
KNOWN = pytest.mark.parametrize("crew", [{"jobs": MODULES}], indirect=True)


def counting(crew: Crew, total: int) -> Call:
    return count_up(diary=crew.diary.path, name="a", gate=crew.gate("at"), total=total)


async def kept(crew: Crew, job_id: str) -> int | None:
    checkpoints = Checkpoints(crew.bus, crew.subjects, 1000)
    _, found = await checkpoints.load(job_id)
    return msgspec.msgpack.decode(found.data, type=int) if found else None


async def told(crew: Crew, what: str) -> None:
    await eventually(lambda: what in crew.diary.told("a"), WITHIN, what)


@KNOWN
async def test_a_killed_workers_job_goes_on_from_its_checkpoint_elsewhere(crew: Crew) -> None:
    crew.hire()
    job_id = await crew.client.dispatch(counting(crew, 30))
    await told(crew, "saved-20")
    crew.workers[0].signal(signal.SIGKILL)
    crew.hire()
    assert (await crew.ended(job_id, WITHIN)).result == [20, 30]
    await eventually(lambda: _gone(crew, job_id), WITHIN, "no checkpoint left")


async def _gone(crew: Crew, job_id: str) -> bool:
    return await kept(crew, job_id) is None


@KNOWN
async def test_a_deposed_attempt_cannot_overwrite_a_newer_one(crew: Crew) -> None:
    crew.hire(), crew.hire()
    job_id = await crew.client.dispatch(counting(crew, 100))
    await told(crew, "saved-20")
    first = crew.worker_of(crew.diary.lines("a")[0])
    first.signal(signal.SIGSTOP)
    await told(crew, "saved-40")  # the other one, from 20 on, waiting at its own gate
    crew.open("at-0")
    first.signal(signal.SIGCONT)
    await told(crew, "ended-by-Cancelled")
    assert await kept(crew, job_id) == 40
    assert "saved-30" in crew.diary.told("a")  # once: by the second
    assert crew.diary.told("a").count("saved-30") == 1
    crew.open("at-20")
    assert (await crew.ended(job_id, WITHIN)).result == [20, 100]


@KNOWN
async def test_a_job_whose_work_was_done_does_none_again(crew: Crew) -> None:
    """Its worker died after the last save, before the end was recorded."""
    job_id = await crew.client.dispatch(counting(crew, 100), job_id="done")
    checkpoints = Checkpoints(crew.bus, crew.subjects, 1000)
    data = msgspec.Raw(msgspec.msgpack.encode(100))
    await checkpoints.save(job_id, Checkpoint(token=1, data=data, has_more_work=False), 0)
    crew.hire()
    assert (await crew.ended(job_id, WITHIN)).result == [100, 100]
    assert crew.diary.told("a") == ["from-100"]


@KNOWN
async def test_other_arguments_begin_anew(crew: Crew) -> None:
    job_id = await crew.client.dispatch(counting(crew, 30))
    checkpoints = Checkpoints(crew.bus, crew.subjects, 1000)
    data = msgspec.Raw(msgspec.msgpack.encode(20))
    await checkpoints.save(job_id, Checkpoint(token=1, data=data), 0)
    await crew.client.cancel(job_id)
    await crew.client.retry(job_id, {"total": 20})
    crew.hire()
    assert (await crew.ended(job_id, WITHIN)).result == [0, 20]


async def test_the_store_replaces_by_compare_and_set(crew: Crew) -> None:
    checkpoints = Checkpoints(crew.bus, crew.subjects, 100)
    first = await checkpoints.save("j", Checkpoint(token=1, data=msgspec.Raw(b"\x01")), 0)
    second = await checkpoints.save("j", Checkpoint(token=2, data=msgspec.Raw(b"\x02")), first)
    with pytest.raises(WrongSequence):
        await checkpoints.save("j", Checkpoint(token=1, data=msgspec.Raw(b"\x03")), first)
    assert (await checkpoints.load("j"))[0] == second
    with pytest.raises(PayloadTooLarge, match=r"101 bytes, jobs.max_checkpoint_bytes allows 100"):
        await checkpoints.save("j", Checkpoint(token=3, data=msgspec.Raw(b"\x01" * 101)), second)
