"""How a worker process ends, pauses and shares: what it finishes, what it leaves to others."""

from __future__ import annotations

import signal
from contextlib import suppress

import msgspec
import pytest
from tests.integration.crew import Crew
from tests.integration.sample_jobs import hold, note
from tests.waiting import eventually

from penstock.bus.protocol import BusUnavailable
from penstock.events.worker import WorkerReport
from penstock.jobs.lifecycle import State
from penstock.runtime.broker import Broker


async def states(crew: Crew, *job_ids: str) -> list[State]:
    return [(await crew.client.job(each)).state for each in job_ids]


async def warm(crew: Crew) -> None:
    """Shows the workers that jobs are short here, so that they claim ahead."""
    calls = [note(diary=crew.diary.path, name=f"short-{n}") for n in range(60)]
    for job_id in await crew.client.dispatch_many(calls):
        await crew.ended(job_id)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT, signal.SIGINT])
async def test_an_idle_worker_ends_at_once(crew: Crew, number: int) -> None:
    worker = crew.hire()
    await crew.ended(await crew.client.dispatch(note(diary=crew.diary.path, name="a")))
    worker.signal(number)
    assert await worker.ended(2) == 0
    left = await crew.client.dispatch(note(diary=crew.diary.path, name="b"))
    assert await states(crew, left) == [State.WAITING]
    crew.hire()
    assert (await crew.ended(left)).attempts == 1  # at once: no pull of the ended one took it


async def test_an_asked_worker_finishes_its_job_and_takes_no_other(crew: Crew) -> None:
    worker = crew.hire()
    call = hold(diary=crew.diary.path, name="a", gate=crew.gate())
    running = await crew.client.dispatch(call)
    await crew.diary.wait("a", "begun")
    worker.signal(signal.SIGTERM)
    waiting = await crew.client.dispatch(note(diary=crew.diary.path, name="b"))

    other = crew.hire()
    assert (await crew.ended(waiting)).record.worker == other.name
    assert worker.exit_code is None
    crew.open()
    view = await crew.ended(running)
    assert (view.state, view.record.worker, view.attempts) == (State.COMPLETED, worker.name, 1)
    assert await worker.ended(2) == 0
    assert crew.diary.told("a") == ["begun", "done"]
    await crew.emptied()


@pytest.mark.parametrize("crew", [{"jobs": {"claim_ahead_seconds": 1}}], indirect=True)
async def test_what_was_claimed_ahead_goes_back_and_runs_elsewhere(crew: Crew) -> None:
    worker = crew.hire()
    await warm(crew)
    calls = [hold(diary=crew.diary.path, name=f"j{n}", gate=crew.gate()) for n in range(6)]
    first, *ahead = await crew.client.dispatch_many(calls)
    for each in ahead:
        await crew.reached(each, State.RUNNING)
    crew.open()  # the last line of defence against a worker that runs them all the same
    worker.signal(signal.SIGTERM)
    assert await worker.ended(5) == 0
    taken = {line.name for line in crew.diary.lines() if line.what == "done"}
    crew.hire()
    for each in (first, *ahead):
        assert (await crew.ended(each)).state is State.COMPLETED
    assert crew.diary.count("done") == dict.fromkeys((f"j{n}" for n in range(6)), 1)
    stories = [await crew.story(each) for each in (first, *ahead)]
    assert sum("JobReleased" in story for story in stories) == 6 - len(taken)
    assert not any("JobRecovered" in story for story in stories)


async def test_a_paused_worker_takes_nothing_until_it_is_resumed(crew: Crew) -> None:
    reports: list[WorkerReport] = []
    subject = crew.subjects.worker_report("*", "*")
    await crew.bus.listen(subject, lambda _, body: reports.append(_report(body)))
    worker = crew.hire()
    await crew.ended(await crew.client.dispatch(note(diary=crew.diary.path, name="a")))

    worker.signal(signal.SIGUSR1)
    await eventually(lambda: reports and reports[-1].state == "draining", 3, "a paused worker")
    waiting = await crew.client.dispatch(note(diary=crew.diary.path, name="b"))
    heard = len(reports)
    await eventually(lambda: len(reports) > heard + 1, 5, "reports while paused")
    assert await states(crew, waiting) == [State.WAITING]

    worker.signal(signal.SIGUSR2)
    assert (await crew.ended(waiting, 2)).record.worker == worker.name
    assert worker.exit_code is None


def _report(body: bytes) -> WorkerReport:
    return msgspec.json.decode(body, type=WorkerReport)


async def test_a_long_job_holds_nobody_up(crew: Crew) -> None:
    """What was claimed ahead of a job that turns out long runs elsewhere, long before its end."""
    slow, quick = crew.hire(), crew.hire()
    await warm(crew)
    calls = [note(diary=crew.diary.path, name=f"n{n}") for n in range(40)]
    calls.insert(3, hold(diary=crew.diary.path, name="long", gate=crew.gate()))
    ids = await crew.client.dispatch_many(calls)
    long = ids.pop(3)
    for each in ids:
        assert (await crew.ended(each)).state is State.COMPLETED
    record = (await crew.client.job(long)).record
    assert record.state is State.RUNNING
    other = quick if record.worker == slow.name else slow
    more = await crew.client.dispatch_many(calls[4:20])
    assert {(await crew.ended(each)).record.worker for each in more} == {other.name}
    assert crew.diary.told("long") == ["begun"]
    crew.open()
    assert (await crew.ended(long)).attempts == 1


@pytest.mark.parametrize("crew", [{"host": {"orphan_grace_seconds": 0.5}}], indirect=True)
async def test_a_worker_without_an_executor_finishes_its_job_and_ends(crew: Crew) -> None:
    busy = crew.hire()
    running = await crew.client.dispatch(hold(diary=crew.diary.path, name="a", gate=crew.gate()))
    await crew.diary.wait("a", "begun")
    idle = crew.hire()
    crew.lose_executor()
    assert await idle.ended(6) == 0
    assert busy.exit_code is None
    left = await crew.client.dispatch(note(diary=crew.diary.path, name="b"))
    crew.open()
    assert (await crew.ended(running)).record.worker == busy.name
    assert await busy.ended(2) == 0
    assert await states(crew, left) == [State.WAITING]


@pytest.mark.parametrize(
    "crew_of_its_own", [{"host": {"orphan_grace_seconds": 0.5}}], indirect=True
)
async def test_an_orphan_does_not_wait_for_a_broker_for_ever(
    crew_of_its_own: Crew, broker: Broker
) -> None:
    crew = crew_of_its_own
    worker = crew.hire()
    job_id = await crew.client.dispatch(hold(diary=crew.diary.path, name="a", gate=crew.gate()))
    await crew.diary.wait("a", "begun")
    broker.kill()
    crew.lose_executor()
    crew.open()  # the job ends, and nobody is there to be told
    assert await worker.ended(10) == 0
    broker.start()

    async def seen() -> list[State]:
        with suppress(BusUnavailable):
            return await states(crew, job_id)
        return []

    assert await eventually(seen, 10) == [State.RUNNING]  # its claim lapses: others run it again
