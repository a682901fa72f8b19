"""Dispatch that is unique, expires, has a priority, or finds the broker away."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.integration.crew import Crew
from tests.integration.sample_jobs import QUEUE, hold, note
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import connect
from penstock.bus.protocol import BusUnavailable
from penstock.config import Settings
from penstock.events.job import JobCancelled, JobDispatched
from penstock.events.subjects import Subjects
from penstock.jobs import AlreadyDispatched, Client, JobRefused, Unique, job
from penstock.jobs.dispatch.uniqueness import unique_token
from penstock.jobs.errors import OutboxFull
from penstock.jobs.lifecycle import State
from penstock.jobs.outbox.store import Outbox
from penstock.runtime.broker import Broker


@job(name="rebuild", queue=QUEUE, middleware=[Unique(30, key="{table}", until_ended=True)])
def rebuild(table: str, rows: int) -> int:
    return rows


def noted(crew: Crew, name: str = "a") -> Any:
    return note(diary=crew.diary.path, name=name)


# --- unique ---------------------------------------------------------------------------------------
async def test_a_double_is_refused_and_named(crew: Crew) -> None:
    first = await crew.client.dispatch(noted(crew), unique_for=30)
    with pytest.raises(AlreadyDispatched, match=first) as refused:
        await crew.client.dispatch(noted(crew), unique_for=30)
    assert refused.value.job_id == first
    await crew.client.dispatch(noted(crew, "b"), unique_for=30)  # other arguments
    await crew.client.dispatch(noted(crew))  # nobody asked
    assert (await crew.depth()).waiting == 3


async def test_its_time_over_a_key_is_free_again(crew: Crew) -> None:
    first = await crew.client.dispatch(noted(crew), unique_for=timedelta(seconds=1))

    async def again() -> str | None:
        with suppress(AlreadyDispatched):
            return await crew.client.dispatch(noted(crew), unique_for=1)
        return None

    assert await eventually(again, 5) != first


async def test_of_many_at_once_one_is_taken(crew: Crew) -> None:
    others = [Client(await connect(crew.settings), prefix=crew.settings.prefix) for _ in range(3)]
    tries = [
        client.dispatch(noted(crew), unique_for=30)
        for client in (crew.client, *others)
        for _ in range(5)
    ]
    answers = await asyncio.gather(*tries, return_exceptions=True)
    taken = [each for each in answers if isinstance(each, str)]
    refused = [each.job_id for each in answers if isinstance(each, AlreadyDispatched)]
    assert len(taken) == 1
    assert refused == taken * 19
    assert (await crew.depth()).waiting == 1
    for client in others:
        await client._bus.close()


@pytest.mark.parametrize(
    "crew", [{"jobs": {"modules": ["tests.integration.test_dispatching"]}}], indirect=True
)
async def test_an_author_may_ask_and_one_that_ended_does_not_count(crew: Crew) -> None:
    first = await crew.client.dispatch(rebuild(table="orders", rows=1))
    with pytest.raises(AlreadyDispatched, match=first):
        await crew.client.dispatch(rebuild(table="orders", rows=2))
    ids = await crew.client.dispatch_many([rebuild(table=t, rows=3) for t in ("orders", "users")])
    assert ids[0] == first != ids[1]
    crew.hire()
    await crew.ended(first)
    again = await crew.client.dispatch(rebuild(table="orders", rows=4))
    assert (await crew.ended(again)).result == 4


async def test_a_dispatch_that_was_cut_in_two_is_finished_by_who_finds_it(crew: Crew) -> None:
    """Its author died after the record of the key, before the job: nobody may name a ghost."""
    call, unique = noted(crew), Unique(30)
    event = crew.client.dispatcher.prepare(call, "cut-in-two")
    sender = crew.client.dispatcher._unique

    async def dies(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched, suppress(KeyboardInterrupt):
        patched.setattr(sender._sender, "ensure_sent", dies)
        await sender.send(event, unique_token(call, unique), unique)
    with pytest.raises(AlreadyDispatched, match="cut-in-two"):
        await crew.client.dispatch(call, unique_for=30)
    crew.hire()
    assert (await crew.ended("cut-in-two")).state is State.COMPLETED
    assert crew.diary.told("a") == ["ran"]


# --- expiry ---------------------------------------------------------------------------------------
async def test_a_job_that_was_not_started_in_time_never_runs(crew: Crew) -> None:
    crew.hire()
    holding = await crew.client.dispatch(
        hold(diary=crew.diary.path, name="h", gate=crew.gate()), expires=30
    )
    await crew.diary.wait("h", "begun")
    late = await crew.client.dispatch(noted(crew, "late"), expires=0.3)
    until = datetime.now(UTC) + timedelta(seconds=60)
    kept = await crew.client.dispatch(noted(crew, "kept"), expires=until)
    first = (await crew.client.job(late)).events[0][1]
    assert isinstance(first, JobDispatched)
    expires_at = first.expires_at
    assert expires_at is not None
    await eventually(lambda: datetime.now(UTC) > expires_at, 5)
    crew.open()
    view = await crew.ended(late)
    end = view.events[-1][1]
    assert isinstance(end, JobCancelled)
    assert (view.state, end.cause) == (State.CANCELLED, "expired")
    assert await crew.story(late) == ["JobDispatched", "JobCancelled"]
    assert (await crew.ended(kept)).state is State.COMPLETED
    assert (await crew.ended(holding)).state is State.COMPLETED
    assert crew.diary.told("late") == []
    await crew.emptied()


async def test_one_that_was_started_goes_on_after_its_time(crew: Crew) -> None:
    """Its worker died: that is the platform's fault, not the job's."""
    crew.hire()
    call = hold(diary=crew.diary.path, name="h", gate=crew.gate())
    job_id = await crew.client.dispatch(call, expires=0.7)
    [line] = await crew.diary.wait("h", "begun")
    crew.worker_of(line).signal(signal.SIGKILL)
    crew.hire()
    await crew.diary.wait("h", "begun", "begun")
    crew.open()
    assert (await crew.ended(job_id)).state is State.COMPLETED


async def test_what_cannot_be_is_refused(crew: Crew) -> None:
    with pytest.raises(ValueError, match="before it is due"):
        await crew.client.dispatch(noted(crew), delay=10, expires=5)
    with pytest.raises(ValueError, match="expires after"):
        await crew.client.dispatch(noted(crew), expires=-1)
    with pytest.raises(ValueError, match="time zone"):
        await crew.client.dispatch(noted(crew), expires=datetime(2036, 1, 1))
    with pytest.raises(JobRefused, match="has no priorities"):
        await crew.client.dispatch(noted(crew), priority="high")


# --- priority -------------------------------------------------------------------------------------
@pytest.mark.parametrize("crew", [{"pools": {QUEUE: {"priorities": True}}}], indirect=True)
async def test_the_higher_lane_is_emptied_first(crew: Crew) -> None:
    client = Client.over(crew.bus, crew.settings)
    crew.hire()
    await client.dispatch(hold(diary=crew.diary.path, name="h", gate=crew.gate()))
    await crew.diary.wait("h", "begun")
    ids = [
        await client.dispatch(noted(crew, f"{priority}{n}"), priority=priority)
        for n in range(3)
        for priority in ("low", "normal", "high")
    ]
    crew.open()
    for each in ids:
        await crew.ended(each)
    order = [line.name for line in crew.diary.lines() if line.what == "ran"]
    assert order == [f"{lane}{n}" for lane in ("high", "normal", "low") for n in range(3)]


# --- tags -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("own_count", "automatic_count"), [(0, 3), (7, 3), (9, 1), (10, 0)])
async def test_automatic_tags_take_the_room_that_own_ones_leave(
    crew: Crew, own_count: int, automatic_count: int
) -> None:
    tables = {"automatic_tags": ["environment", "queue", "host"], "environment": "staging"}
    settings = Settings(prefix=crew.settings.prefix, dispatch=tagging(tables))
    client = Client.over(crew.bus, settings)
    own = [f"t{n}" for n in range(own_count)]
    record = (await client.job(await client.dispatch(noted(crew), tags=own))).record
    automatic = ["env:staging", f"queue:{QUEUE}", f"host:{settings.host.name}"]
    assert record.tags == (*own, *automatic[:automatic_count])
    with pytest.raises(ValueError, match="at most 10 tags"):
        await client.dispatch(noted(crew), tags=[f"t{n}" for n in range(11)])


def tagging(tables: dict[str, Any]) -> Any:
    from penstock.config.load import check

    return check({"dispatch": tables}).dispatch


# --- the broker is away ---------------------------------------------------------------------------
def away(make: MakeSettings, tmp_path: Path, **tables: Any) -> Settings:
    return make(
        nats={"request_timeout_seconds": 0.5, "connect_timeout_seconds": 5},
        pools={QUEUE: {}},
        dispatch={"outbox_file": str(tmp_path / "outbox" / "file"), **tables},
    )


def kept(settings: Settings) -> int:
    outbox = Outbox(settings.dispatch.outbox_file, 10)
    try:
        return len(outbox)
    finally:
        outbox.close()


async def dispatched(client: Client, count: int) -> None:
    """Returns when so many jobs are in the event log."""
    stream, subject = client._subjects.events_stream, client._subjects.events("job", "*", "*")
    following: Any = client._bus.follow(stream, [subject], 1)
    async with aclosing(following) as events:
        async for stored in events:
            if stored.sequence >= count:
                return


async def waiting_in(settings: Settings) -> int:
    bus = await connect(settings)
    try:
        await bus.ensure_queue(QUEUE)
        return (await bus.depths())[QUEUE].waiting
    finally:
        await bus.close()


async def test_as_usual_a_dispatch_fails(
    broker: Broker, settings: MakeSettings, tmp_path: Path
) -> None:
    async with Client.connect(away(settings, tmp_path)) as client:
        broker.kill()
        with pytest.raises(BusUnavailable):
            await client.dispatch(note(diary="d", name="a"))


async def test_a_dispatch_may_wait(broker: Broker, settings: MakeSettings, tmp_path: Path) -> None:
    known = away(settings, tmp_path, when_away="wait", wait_seconds=20)
    async with Client.connect(known) as client:
        broker.kill()
        plain = asyncio.create_task(client.dispatch(note(diary="d", name="a"), job_id="a"))
        unique = asyncio.create_task(client.dispatch(note(diary="d", name="b"), unique_for=60))
        done, _ = await asyncio.wait([plain, unique], timeout=1)
        assert not done
        broker.start()
        assert await plain == "a"
        assert (await client.job(await unique)).state is State.WAITING
    assert await waiting_in(known) == 2


async def test_a_wait_has_an_end(broker: Broker, settings: MakeSettings, tmp_path: Path) -> None:
    async with Client.connect(
        away(settings, tmp_path, when_away="wait", wait_seconds=0.5)
    ) as client:
        broker.kill()
        with pytest.raises(BusUnavailable):
            await client.dispatch(note(diary="d", name="a"))


async def test_the_outbox_is_sent_in_order_and_once(
    broker: Broker, settings: MakeSettings, tmp_path: Path
) -> None:
    known = away(settings, tmp_path, when_away="outbox")
    async with Client.connect(known) as client:
        before = await client.dispatch(note(diary="d", name="before"))
        broker.kill()
        ids = [await client.dispatch(note(diary="d", name=f"j{n}")) for n in range(5)]
        assert kept(known) == 5
        broker.start()
        ids.append(await client.dispatch(note(diary="d", name="after")))
        ids += await client.dispatch_many([note(diary="d", name=f"m{n}") for n in range(3)])
        assert client.dispatcher.offline is not None
        await client.dispatcher.offline.sent()
        views = [await client.job(each) for each in (before, *ids)]
        assert [view.state for view in views] == [State.WAITING] * 10
        sequences = [view.record.sequence for view in views]
        assert sequences == sorted(sequences)
    assert await waiting_in(known) == 10
    assert kept(known) == 0


@pytest.mark.parametrize("when_away", ["wait", "outbox"])
async def test_many_jobs_survive_a_broker_that_goes_while_they_are_dispatched(
    broker: Broker, settings: MakeSettings, tmp_path: Path, when_away: str
) -> None:
    known = away(settings, tmp_path, when_away=when_away, wait_seconds=20)
    async with Client.connect(known) as client:
        calls = [note(diary="d", name=f"j{n}") for n in range(6000)]
        dispatching = asyncio.create_task(client.dispatch_many(calls))
        await dispatched(client, 300)
        assert not dispatching.done()
        broker.kill()
        broker.start()
        ids = await dispatching
        assert client.dispatcher.offline is not None
        await client.dispatcher.offline.sent()
        subjects = Subjects(known.prefix)
        events = await client._bus.count(subjects.events_stream, subjects.events("job", "*"))
    assert events == {subjects.events("job", job_id, "JobDispatched"): 1 for job_id in ids}
    assert await waiting_in(known) >= 6000  # a message that was sent twice runs once


async def test_as_usual_many_jobs_fail_together(
    broker: Broker, settings: MakeSettings, tmp_path: Path
) -> None:
    async with Client.connect(away(settings, tmp_path)) as client:
        broker.kill()
        with pytest.raises(BusUnavailable):
            await client.dispatch_many([note(diary="d", name=f"j{n}") for n in range(3)])


async def test_a_full_outbox_refuses(
    broker: Broker, settings: MakeSettings, tmp_path: Path
) -> None:
    known = away(settings, tmp_path, when_away="outbox", outbox_max_jobs=2)
    broker.kill()
    async with Client.connect(known) as client:  # the broker was not even there
        for n in range(2):
            await client.dispatch(note(diary="d", name=f"j{n}"))
        with pytest.raises(OutboxFull, match="no room for 1 more of at most 2"):
            await client.dispatch(note(diary="d", name="j2"))
        broker.start()
        assert client.dispatcher.offline is not None
        await client.dispatcher.offline.sent()
    assert await waiting_in(known) == 2


_DISPATCH_AND_DIE = """
import asyncio, json, os, signal, sys
from tests.integration.sample_jobs import note
from penstock.config.load import check
from penstock.jobs import Client

async def whole():
    async with Client.connect(check(json.loads(sys.argv[1]))) as client:
        for n in range(4):
            print(await client.dispatch(note(diary="d", name=f"j{n}")), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(whole())
"""


async def test_what_a_killed_process_left_is_sent_by_the_next(
    broker: Broker, settings: MakeSettings, tmp_path: Path
) -> None:
    known = away(settings, tmp_path, when_away="outbox")
    broker.kill()
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _DISPATCH_AND_DIE,
        msgspec.json.encode(known).decode(),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    told, _ = await child.communicate()
    assert child.returncode == -signal.SIGKILL
    ids = told.decode().split()
    # as if it had died after sending the first, before removing it
    broker.start()
    bus = await connect(known)
    outbox = Outbox(known.dispatch.outbox_file, 10)
    [entry] = outbox.first(1)
    outbox.close()
    await Client(bus, prefix=known.prefix).dispatcher.sender.send_many([entry.event])
    await bus.close()
    async with Client.connect(known) as client:
        assert client.dispatcher.offline is not None
        await client.dispatcher.offline.sent()
        assert [(await client.job(each)).state for each in ids] == [State.WAITING] * 4
        names = [len((await client.job(each)).events) for each in ids]
        assert names == [1, 1, 1, 1]


def test_an_outbox_that_is_no_file_of_ours(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, by any means" * 100)
    with pytest.raises(OSError, match="cannot be used"):
        Outbox(str(tmp_path / "text"), 10)
