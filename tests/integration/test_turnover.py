"""No living job, batch, graph or schedule rests on a message that leaves the log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.buses import both, on_both
from tests.integration.turned_jobs import counted, hold, join, mend, note
from tests.integration.turning import LIMIT_BYTES, QUEUE, WITHIN, CutShort, Stage
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.protocol import Bus, Outgoing, StreamFull
from penstock.events.envelope import encode
from penstock.events.job import JobCancelled, JobCarried, JobDispatched
from penstock.jobs import awaiting
from penstock.jobs.errors import NotFound
from penstock.jobs.lifecycle import State
from penstock.jobs.payloads import payload as payloads
from penstock.jobs.queues import queue_messages
from penstock.jobs.workflows.client import Step


@pytest.fixture(params=both("nats"))
async def stage(request: pytest.FixtureRequest, settings: MakeSettings) -> AsyncIterator[Stage]:
    async with Stage(request.param, settings) as stage:
        yield stage


@pytest.fixture
def diary(tmp_path: Path) -> str:
    return str(tmp_path / "diary")


def touch(*paths: str) -> None:
    for path in paths:
        Path(path).touch()


def lines(diary: str) -> list[str]:
    return sorted(Path(diary).read_text().splitlines()) if Path(diary).exists() else []


async def test_jobs_in_every_state_outlive_the_log_and_end_once(
    stage: Stage, diary: str, tmp_path: Path
) -> None:
    """Given jobs that wait, are delayed, paused, retrying and running while the log turns over
    twice; then each is shown as it is, ends once, and no message becomes a dead letter."""
    gate, mended = str(tmp_path / "gate"), str(tmp_path / "mended")
    client = stage.client
    async with stage.worker(), stage.orchestrator() as orchestrator:
        retrying = await client.dispatch(mend(diary=diary, line="retrying", mended=mended))
        await _until(stage, retrying, State.RETRYING)
        running = await client.dispatch(hold(diary=diary, line="running", gate=gate))
        await _until(stage, running, State.RUNNING)
        waiting = await client.dispatch(note(diary=diary, line="waiting"))
        delayed = await client.dispatch(note(diary=diary, line="delayed"), delay=4)
        later = await client.dispatch(note(diary=diary, line="later"), delay=86_400)
        await client.pause_queue("paused")
        paused = await client.dispatch(note(diary=diary, line="paused"), queue="paused")

        for _ in range(2):
            await stage.turn_over()

        states = {name: (await client.job(name)).state for name in (waiting, later, paused)}
        assert states == {waiting: "waiting", later: "scheduled", paused: "waiting"}
        assert (await client.job(running)).state is State.RUNNING
        assert isinstance((await client.job(waiting)).events[0][1], JobCarried)
        touch(mended, gate)
        for name in (running, waiting, delayed, retrying):
            assert (await client.wait(name, WITHIN)).state is State.COMPLETED
        async with stage.worker("paused"):
            await client.resume_queue("paused")
            assert (await client.wait(paused, WITHIN)).state is State.COMPLETED
        assert orchestrator.history.carried
    assert lines(diary) == ["delayed", "paused", "retrying", "running", "waiting"]
    assert await stage.dead_letters() == []


async def _until(stage: Stage, job_id: str, state: State) -> None:
    async def is_there() -> bool:
        return (await stage.client.job(job_id)).state is state

    await eventually(is_there, WITHIN, f"{job_id} {state}")


async def test_a_batch_whose_first_members_left_the_log_counts_them(
    stage: Stage, diary: str, tmp_path: Path
) -> None:
    """Given a batch of which most jobs ended before the log turned over, and one runs on; then its
    counts are exact, its callback runs once, and adding the same jobs again runs none twice."""
    gate = str(tmp_path / "gate")
    client = stage.client
    done = [note(diary=diary, line=f"member {number}") for number in range(5)]
    async with stage.worker(), stage.orchestrator():
        async with client.batches.open(
            batch_id="b1", then=awaiting(counted, "outcome", diary=diary)
        ) as batch:
            ids = await batch.add(done)
            for name in ids:
                await client.wait(name, WITHIN)
            await stage.turn_over()
            assert await stage.bus.last(
                stage.subjects.events_stream, stage.subjects.job(ids[0])
            ) is None  # fmt: skip
            assert await client.batches.add("b1", done, key="b1") == ids
            await batch.add([hold(diary=diary, line="member 5", gate=gate)])
        await stage.turn_over()
        touch(gate)
        record = await client.batches.wait("b1", WITHIN)
        assert (record.state, record.counts.completed) == ("completed", 6)
        assert len(await client.batches.ended("b1")) == 6
        assert (await client.wait("b1_then", WITHIN)).state is State.COMPLETED
    assert lines(diary) == ["batch 6 of 6", *(f"member {number}" for number in range(6))]


@on_both
async def test_a_step_takes_a_result_whose_job_ended_a_log_ago(
    stage: Stage, diary: str, tmp_path: Path
) -> None:
    gate = str(tmp_path / "gate")
    client = stage.client
    async with stage.worker(), stage.orchestrator():
        steps = {
            "a": Step(note(diary=diary, line="first")),
            "b": Step(hold(diary=diary, line="second", gate=gate), after=("a",)),
            "c": Step(awaiting(join, "text", diary=diary), after=("a", "b"), takes={"text": "a"}),
        }
        graph = await client.graphs.dispatch(steps)
        await _until_step(stage, graph, "b", State.RUNNING)
        for _ in range(2):
            await stage.turn_over()
        touch(gate)
        record = await client.graphs.wait(graph, WITHIN)
        assert record.state == "completed"
    assert lines(diary) == ["first", "joined first", "second"]


async def _until_step(stage: Stage, graph: str, step: str, state: State) -> None:
    async def is_there() -> bool:
        try:
            return (await stage.client.graphs.step(graph, step)).state is state
        except NotFound:
            return False

    await eventually(is_there, WITHIN, f"step {step} {state}")


async def test_a_message_whose_job_ended_a_log_ago_is_dropped_quietly(
    stage: Stage, diary: str
) -> None:
    """Given a second message of a job that ended, whose events left the log; then it neither runs
    nor becomes a dead letter. One that never was a job's still does."""
    client, subjects = stage.client, stage.subjects
    async with stage.worker(), stage.orchestrator():
        name = await client.dispatch(note(diary=diary, line="once"))
        record = (await client.wait(name, WITHIN)).record
        await stage.turn_over()
        again = Outgoing(
            subjects.queue(QUEUE),
            record.payload,
            queue_messages.headers(name, record.life_from, 1, {}),
        )
        await stage.bus.append(again)
        await client.wait(await client.dispatch(note(diary=diary, line="after")), WITHIN)
        assert await stage.dead_letters() == []

        last = (await stage.bus.extent(subjects.events_stream)).last
        forged = _with_id(record.payload, "never-dispatched")
        headers = queue_messages.headers("never-dispatched", last + 1, 1, {})
        await stage.bus.append(Outgoing(subjects.queue(QUEUE), forged, headers))
        await eventually(stage.dead_letters, WITHIN, "dead letter")
    assert lines(diary) == ["after", "once"]


def _with_id(payload: bytes, job_id: str) -> bytes:
    return payloads.encode(replace(payloads.decode(payload), id=job_id))


async def test_a_log_full_of_waiting_jobs_takes_no_more_and_loses_none(
    stage: Stage, diary: str
) -> None:
    """Given jobs that wait until the log is full of them; then a dispatch is refused with a reason,
    ends are stored all the same, and room is made by them."""
    client = stage.client
    async with stage.orchestrator():
        taken: list[str] = []
        large = "x" * 100_000
        with pytest.raises(StreamFull, match="the event log is full"):
            while len(taken) < 200:
                taken.append(await client.dispatch(note(diary=diary, line=large)))
        assert len(taken) * 130_000 > LIMIT_BYTES
        async with stage.worker():
            await eventually(lambda: len(lines(diary)) == len(taken), WITHIN, "all jobs to run")

            async def is_accepted() -> str | None:
                try:
                    return await client.dispatch(note(diary=diary, line="small"))
                except StreamFull:
                    return None

            name = await eventually(is_accepted, WITHIN, "a dispatch")
            assert name and (await client.wait(name, WITHIN)).state is State.COMPLETED


class Refilled:
    """A bus on which others take the first rooms that a full log is given."""

    def __init__(self, bus: Bus, fill: Callable[[], Awaitable[None]]) -> None:
        self._bus, self._fill, self.times = bus, fill, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def adapt_streams(self, extra_bytes: int = 0) -> None:
        await self._bus.adapt_streams(extra_bytes)
        if extra_bytes and self.times < 3:
            self.times += 1
            await self._fill()


async def test_messages_in_the_brokers_name_neither_hold_up_nor_mislead_shortening(
    stage: Stage, diary: str
) -> None:
    """Any key that may store an event may write headers that only the broker should."""
    client = stage.client
    name = await client.dispatch(note(diary=diary, line="lives"), delay=3600)
    forged = stage.subjects.events("pool", "x", "ForecastMade")
    end = JobCancelled(job_id=name, reason="forged")
    for headers in (
        {"Nats-Subject": stage.subjects.event(end)},
        {"Nats-Sequence": "999999999"},
        {"Nats-Sequence": "0"},
        {"Nats-Subject": "x"},
    ):
        await stage.bus.append(Outgoing(forged, encode(end), headers))
    async with stage.orchestrator():
        for _ in range(2):
            await stage.traffic()
            await stage.turn_over()
    assert (await client.job(name)).state is State.SCHEDULED


@on_both
async def test_a_full_log_that_others_fill_again_and_again_is_shortened(
    stage: Stage, diary: str
) -> None:
    client = stage.client

    async def fill() -> None:
        with suppress(StreamFull):
            while True:
                await stage.traffic(100_000)

    names = [await client.dispatch(note(diary=diary, line=f"{n}"), delay=3600) for n in range(50)]
    await fill()
    bus = Refilled(await stage.connect(), fill)
    async with stage.orchestrator(cast("Bus", bus)):
        await eventually(lambda: bus.times == 3, WITHIN, "room that is taken by others")
        await stage.turn_over()
    for name in names:
        assert (await client.job(name)).state is State.SCHEDULED


async def test_a_forged_carried_record_changes_no_job_that_has_events(
    stage: Stage, diary: str
) -> None:
    client = stage.client
    name = await client.dispatch(note(diary=diary, line="real"))
    record = (await client.job(name)).record
    forged = JobCarried(
        job_id=name, queue=QUEUE, function="none", payload=b"", state="completed",
        dispatched_at=record.dispatched_at, available_at=record.available_at,
        changed_by=1, life_from=1,
    )  # fmt: skip
    await stage.bus.append(Outgoing(stage.subjects.event(forged), encode(forged)))
    view = await client.job(name)
    assert (view.state, view.record.function) == (State.WAITING, record.function)
    assert isinstance(view.events[0][1], JobDispatched)


async def test_shortening_that_is_cut_off_anywhere_begins_again(stage: Stage, diary: str) -> None:
    client, bus = stage.client, await stage.connect()
    cut_short = CutShort(bus, stage.subjects.events_stream)
    await stage.bus.ensure_queue(QUEUE)
    names = [await client.dispatch(note(diary=diary, line=f"job {n}")) for n in range(20)]
    async with stage.orchestrator(cast("Bus", cut_short)):
        await stage.turn_over()
        assert cut_short.cuts == 4
        for name in names:
            [(_, first), *_] = (await client.job(name)).events
            assert isinstance(first, JobCarried)
        async with stage.worker():
            for name in names:
                assert (await client.wait(name, WITHIN)).state is State.COMPLETED
    assert lines(diary) == sorted(f"job {n}" for n in range(20))
    assert await stage.dead_letters() == []


async def test_two_orchestrators_and_one_that_ends_at_any_time(stage: Stage, diary: str) -> None:
    """Given a second orchestrator that comes and goes while the log turns over; nothing is lost."""
    client = stage.client
    names = [await client.dispatch(note(diary=diary, line=f"job {n}")) for n in range(5)]
    async with stage.orchestrator():
        await stage.turn_over()
    async with stage.orchestrator(), stage.orchestrator():
        await stage.turn_over()
    async with stage.orchestrator(), stage.worker():
        for name in names:
            assert (await client.wait(name, WITHIN)).state is State.COMPLETED
    assert lines(diary) == sorted(f"job {n}" for n in range(5))


async def test_a_schedule_ticks_on_while_the_log_turns_over(stage: Stage, diary: str) -> None:
    client = stage.client
    async with stage.worker(), stage.orchestrator():
        await client.schedules.add("each-second", note(diary=diary, line="tick"), "* * * * * *")
        await stage.turn_over()
        before = len(lines(diary))
        await eventually(lambda: len(lines(diary)) > before + 1, WITHIN, "two more ticks")
    assert await stage.dead_letters() == []
