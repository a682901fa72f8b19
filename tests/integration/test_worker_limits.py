"""Worker processes that end by themselves at a limit, in a burst, or quickly when told so."""

from __future__ import annotations

import signal
import time
from typing import Any

import msgspec
import pytest
from tests.integration.crew import Crew
from tests.integration.sample_jobs import QUEUE, advance, hold_unasked, note, stubborn
from tests.waiting import eventually

from penstock.events.job import JobReleased
from penstock.events.worker import WorkerReport
from penstock.jobs.lifecycle import State

UNRESPONSIVE = 75


def pool(**limits: Any) -> dict[str, Any]:
    return {"pools": {QUEUE: {"tries": 1, **limits}}}


async def last_words(crew: Crew) -> list[str]:
    """What workers say they end for, as it comes in."""
    said: list[str] = []

    def hear(_: str, body: bytes) -> None:
        if words := msgspec.json.decode(body, type=WorkerReport).stopping_because:
            said.append(words)

    await crew.bus.listen(crew.subjects.worker_report("*", "*"), hear)
    return said


def notes(crew: Crew, count: int) -> list[Any]:
    return [note(diary=crew.diary.path, name=f"n{n}") for n in range(count)]


@pytest.mark.parametrize("crew", [pool(limit_jobs=3)], indirect=True)
async def test_a_worker_ends_after_so_many_jobs_and_leaves_the_others(crew: Crew) -> None:
    said = await last_words(crew)
    ids = await crew.client.dispatch_many(notes(crew, 5))
    first = crew.hire()
    assert await first.ended() == 0
    states = [(await crew.client.job(each)).state for each in ids]
    assert states == [State.COMPLETED] * 3 + [State.WAITING] * 2
    assert said[-1] == "limit: 3 jobs done, 3 allowed"
    second = crew.hire()
    assert {(await crew.ended(each)).record.worker for each in ids[3:]} == {second.name}
    await crew.emptied()


@pytest.mark.parametrize(
    ("crew", "words"),
    [(pool(limit_seconds=0.5), "s old"), (pool(limit_memory_bytes=1_000_000), "MiB in use")],
    indirect=["crew"],
)
async def test_an_idle_worker_ends_at_its_limit(crew: Crew, words: str) -> None:
    said = await last_words(crew)
    assert await crew.hire().ended() == 0
    assert words in said[-1]


async def test_a_burst_worker_ends_when_nothing_waits(crew: Crew) -> None:
    said = await last_words(crew)
    later = await crew.client.dispatch(note(diary=crew.diary.path, name="later"), delay=3600)
    ids = await crew.client.dispatch_many(notes(crew, 100))
    assert await crew.hire(burst=True).ended() == 0
    assert {(await crew.client.job(each)).state for each in ids} == {State.COMPLETED}
    assert (await crew.client.job(later)).state is State.SCHEDULED
    assert "nothing waits" in said[-1]
    await crew.client.cancel(later)


async def test_told_to_end_quickly_a_worker_gives_its_job_back(crew: Crew) -> None:
    worker = crew.hire()
    call = hold_unasked(diary=crew.diary.path, name="a", gate=crew.gate())
    job_id = await crew.client.dispatch(call)
    await crew.diary.wait("a", "begun")
    worker.signal(signal.SIGQUIT)
    assert await worker.ended(3) == 0
    assert crew.diary.told("a") == ["begun", "interrupted-Cancelled"]
    view = await crew.client.job(job_id)
    assert view.state is State.WAITING
    released = view.events[-1][1]
    assert isinstance(released, JobReleased) and released.reason == "asked to end quickly"

    crew.open()
    heir = crew.hire()
    view = await crew.ended(job_id)
    assert (view.record.worker, view.attempts) == (heir.name, 1)
    await crew.emptied()


@pytest.mark.parametrize("crew", [{"jobs": {"claim_seconds": 30}}], indirect=True)
async def test_a_job_that_does_not_let_go_is_given_back_all_the_same(crew: Crew) -> None:
    """At once, not when its claim lapses: that would be in 30 s."""
    worker = crew.hire()
    job_id = await crew.client.dispatch(stubborn(diary=crew.diary.path, name="a", gate=crew.gate()))
    await crew.diary.wait("a", "begun")
    worker.signal(signal.SIGQUIT)
    began = time.monotonic()
    assert await worker.ended(5) == UNRESPONSIVE
    crew.open()
    crew.hire()
    view = await crew.ended(job_id)
    assert time.monotonic() - began < 10
    assert (view.state, view.attempts) == (State.COMPLETED, 1)
    assert (await crew.story(job_id)).count("JobReleased") == 1


async def test_a_job_tells_whether_its_work_goes_on(crew: Crew) -> None:
    heard: dict[str, WorkerReport] = {}

    def hear(_: str, body: bytes) -> None:
        report = msgspec.json.decode(body, type=WorkerReport)
        heard[report.worker] = report

    await crew.bus.listen(crew.subjects.worker_report("*", "*"), hear)
    silent, lively = crew.hire(), crew.hire()
    path, gate = crew.diary.path, crew.gate()
    await crew.client.dispatch(hold_unasked(diary=path, name="a", gate=gate))
    await crew.client.dispatch(advance(diary=path, name="b", gate=gate, total=9))
    [a] = await crew.diary.wait("a", "begun")
    names = [silent.name, lively.name]
    first = crew.worker_of(a).name
    [second] = [name for name in names if name != first]

    def claim(name: str) -> Any:
        return next(iter(heard[name].claims), None) if name in heard else None

    await eventually(lambda: (c := claim(first)) and c.silent_seconds > 1, 5, "a silent job")
    await eventually(lambda: (c := claim(second)) and c.running_seconds > 1, 5, "a lively job")
    assert claim(second).silent_seconds < 0.5
    assert claim(second).queue == QUEUE
    crew.open()
