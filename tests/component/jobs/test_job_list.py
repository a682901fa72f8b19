"""Lists of jobs, and jobs by the beginning of their id, out of the event log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from penstock.bus import lookback
from penstock.bus.protocol import Outgoing
from penstock.events.envelope import Event, encode, utc_now
from penstock.events.job import JobDead, JobDispatched, JobError, JobStarted
from penstock.events.subjects import Subjects
from penstock.jobs import Client, job, job_view
from penstock.jobs.errors import AmbiguousId, BadTime, NotFound
from penstock.jobs.job_filter import JobFilter
from penstock.jobs.job_log import JobLog
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import State
from penstock.jobs.payloads.encryption import KeyRing
from penstock.jobs.reading.job_list import JobQuery, newest_jobs
from penstock.testing.memory.bus import MemoryBus

SUBJECTS = Subjects()


@job(name="cli-test.add", queue="reports", tags=["sums"])
def add(a: int, b: int = 0) -> int:
    return a + b


@job(name="cli-test.send", queue="mails")
def send(to: str) -> None: ...


@pytest.fixture
def bus() -> MemoryBus:
    return MemoryBus()


async def publish(bus: MemoryBus, event: Event, subject: str = "") -> None:
    await bus.append(Outgoing(subject or SUBJECTS.event(event), encode(event)))


async def test_jobs_that_changed_last_come_first(bus) -> None:
    client = Client(bus)
    first, second = [await client.dispatch(add(a=1)), await client.dispatch(add(a=2))]
    await client.cancel(first, "not wanted")
    found = await newest_jobs(bus, SUBJECTS, JobQuery(), 10)
    assert [(record.id, record.state) for record in found] == [
        (first, State.CANCELLED),
        (second, State.WAITING),
    ]


async def test_a_list_of_jobs_is_a_sequence(bus) -> None:
    client = Client(bus)
    ids = [await client.dispatch(add(a=n)) for n in range(3)]
    found = await client.jobs.list()
    assert isinstance(found, Sequence)
    assert (found[0].id, found[-1].id) == (ids[2], ids[0])
    assert [view.id for view in found[:2]] == [ids[2], ids[1]]
    assert [view.id for view in reversed(found)] == ids
    assert (len(found), found.cut_off, found[0] in found) == (3, False, True)


async def test_jobs_by_state_and_queue_and_limit(bus) -> None:
    client = Client(bus)
    ids = [await client.dispatch(add(a=n), queue=q) for n, q in enumerate(["x", "y", "x", "x"])]
    await client.cancel(ids[0])

    async def listed(state: State | None, queue: str | None, limit: int) -> list[str]:
        found = await newest_jobs(
            bus,
            SUBJECTS,
            JobQuery(state=state, matching=JobFilter(queues=(queue,) if queue else ())),
            limit,
        )
        return [record.id for record in found]

    assert await listed(State.CANCELLED, None, 9) == [ids[0]]
    assert await listed(State.WAITING, "x", 9) == [ids[3], ids[2]]
    assert await listed(None, "x", 1) == [ids[0]]
    assert await listed(State.DEAD, None, 9) == []


async def test_a_job_whose_beginning_is_far_back_is_read_as_a_whole(bus, monkeypatch) -> None:
    monkeypatch.setattr("penstock.bus.lookback.FIRST_SPAN", 1)
    client = Client(bus)
    job_id = await client.dispatch(add(a=1))
    await client.cancel(job_id)
    [record] = await newest_jobs(bus, SUBJECTS, JobQuery(), 1)
    assert (record.state, record.function) == (State.CANCELLED, "cli-test.add")


async def test_what_cannot_be_told_is_left_out(bus) -> None:
    orphan = JobStarted(job_id="half", queue="q", attempt=1, host="h", worker="w")
    await publish(bus, orphan)  # its beginning aged out
    subject = SUBJECTS.event(JobDispatched(job_id="bad", queue="q", function="f", payload=b""))
    await bus.append(Outgoing(subject, b"no JSON"))
    whole = await Client(bus).dispatch(add(a=1))
    found = await newest_jobs(bus, SUBJECTS, JobQuery(), 10)
    assert [record.id for record in found] == [whole]


async def test_jobs_whose_beginning_left_the_log_cost_no_question(bus, monkeypatch) -> None:
    monkeypatch.setattr("penstock.bus.lookback.FIRST_SPAN", 8)
    client = Client(bus)
    ids = [await client.dispatch(add(a=n)) for n in range(4)]
    for job_id in ids:
        started = JobStarted(job_id=job_id, queue="reports", attempt=1, host="h", worker="w")
        await publish(bus, started)
    await bus.remove(SUBJECTS.events_stream, SUBJECTS.events(), before=5)
    dead = await client.dispatch(add(a=9))
    await publish(bus, JobDead(job_id=dead, queue="reports", error=JobError(kind="E", message="x")))
    await client.dispatch_many([add(a=n) for n in range(20)])
    asked: list[str] = []
    monkeypatch.setattr(job_view, "read", lambda log, job_id, ring: asked.append(job_id))
    [record] = await newest_jobs(bus, SUBJECTS, JobQuery(state=State.DEAD), 9)
    assert (record.id, asked) == (dead, [])


async def test_a_job_is_asked_for_once_while_a_listing_looks_further_back(bus, monkeypatch) -> None:
    monkeypatch.setattr("penstock.bus.lookback.FIRST_SPAN", 1)
    monkeypatch.setattr("penstock.bus.lookback.DEEPEST_SPAN", 16)
    client = Client(bus)
    job_id = await client.dispatch(add(a=1))
    await client.dispatch_many([add(a=n) for n in range(20)])
    await client.cancel(job_id)
    asked: list[str] = []
    read = job_view.read

    async def counted(log: JobLog, job_id: str, ring: KeyRing) -> JobView:
        asked.append(job_id)
        return await read(log, job_id, ring)

    monkeypatch.setattr(job_view, "read", counted)
    assert len(await newest_jobs(bus, SUBJECTS, JobQuery(state=State.CANCELLED), 9)) == 1
    assert asked == [job_id]


async def listed(client: Client, **fields) -> list[str]:
    return [view.id for view in await client.jobs.list(**fields)]


async def test_jobs_by_function_tag_batch_and_worker(bus) -> None:
    client = Client(bus)
    first = await client.dispatch(add(a=1), tags=["night"])
    second = await client.dispatch(send(to="ann"))
    async with client.batches.open() as batch:
        [member] = await batch.add([add(a=2)])
    started = JobStarted(job_id=second, queue="mails", attempt=1, host="h", worker="mails-1")
    await publish(bus, started)
    assert await listed(client, function="cli-test.send") == [second]
    assert await listed(client, tag="night") == [first]
    assert await listed(client, tag="sums") == [member, first]
    assert await listed(client, batch=batch.id) == [member]
    assert await listed(client, worker="mails-1") == [second]
    assert await listed(client, worker="mails-1", tag="night") == []
    [view] = await client.jobs.list(batch=batch.id)
    assert (view.function, view.batch_id, view.state) == ("cli-test.add", batch.id, State.WAITING)


async def test_jobs_by_queue_with_all_its_priorities(bus) -> None:
    client = Client(bus)
    high = await client.dispatch(send(to="ann"), queue="mails--high")
    normal = await client.dispatch(send(to="bob"))
    assert await listed(client, queue="mails") == [normal, high]
    assert await listed(client, queue="mails--high") == [high]


async def test_jobs_by_time() -> None:
    now = datetime(2026, 11, 23, 12).astimezone()
    bus = MemoryBus(now=lambda: now.timestamp())  # noqa: PLW0108 - as it is then
    client = Client(bus)
    old = await client.dispatch(add(a=1))
    between = now + timedelta(minutes=30)
    now += timedelta(hours=1)
    new = await client.dispatch(add(a=2))
    assert await listed(client, since=timedelta(minutes=30)) == [new]
    assert await listed(client, until=timedelta(minutes=30)) == [old]
    assert await listed(client, since=between) == [new]
    assert await listed(client, since=timedelta(hours=2)) == [new, old]
    with pytest.raises(BadTime, match="zone"):
        await listed(client, since=datetime(2026, 11, 23))


async def test_a_list_that_was_cut_off_says_how_far_it_reaches(bus, monkeypatch) -> None:
    monkeypatch.setattr(lookback, "FIRST_SPAN", 2)
    monkeypatch.setattr(lookback, "DEEPEST_SPAN", 8)
    client = Client(bus)
    first = await client.dispatch(send(to="ann"))
    for number in range(20):
        await client.dispatch(add(a=number))
    jobs = await client.jobs.list(function="cli-test.send")
    assert (len(jobs), jobs.cut_off) == (0, True)
    assert jobs.reaches_back_to <= utc_now()
    assert not (await client.jobs.list(limit=3)).cut_off
    assert first not in await listed(client)


async def test_a_job_by_the_beginning_of_its_id(bus) -> None:
    client = Client(bus)
    job_id = await client.dispatch(add(a=1))
    await client.dispatch(add(a=2), job_id="order-17-a")
    assert await client.jobs.find_id(job_id[:18]) == job_id
    assert await client.jobs.find_id(job_id) == job_id
    assert await client.jobs.find_id("order-1") == "order-17-a"
    assert await client.jobs.find_id("order-17-a") == "order-17-a"


async def test_an_ambiguous_beginning_names_the_candidates(bus) -> None:
    client = Client(bus)
    ids = [await client.dispatch(add(a=n), job_id=f"order-{n}") for n in range(12)]
    with pytest.raises(
        AmbiguousId, match=r"12 jobs .*:\n  order-0\n  (.*\n)+  and 2 more"
    ) as ambiguous:
        await client.jobs.find_id("orde")
    assert ambiguous.value.ids == sorted(ids)
    assert await client.jobs.find_id("order-1") == "order-1"  # a whole id is no beginning


@pytest.mark.parametrize("length", [4, 7, 13, 35])
async def test_an_id_that_is_the_beginning_of_another_does_not_stand_for_it(bus, length) -> None:
    client = Client(bus)
    job_id = await client.dispatch(add(a=1))
    decoy = await client.dispatch(add(a=2), job_id=job_id[:length])
    with pytest.raises(AmbiguousId) as ambiguous:
        await client.jobs.find_id(decoy)
    assert ambiguous.value.ids == sorted([decoy, job_id])
    assert await client.jobs.find_id(job_id) == job_id


async def test_an_id_of_ones_own_in_hexadecimal_digits_is_found(bus) -> None:
    client = Client(bus)
    for job_id in ("01a2", "01a2-7", "c0ffee"):
        await client.dispatch(add(a=1), job_id=job_id)
        assert await client.jobs.find_id(job_id) == job_id
    assert await client.jobs.find_id("01a2") == "01a2"


@pytest.mark.parametrize("text", ["ffffffff", "0193", "abc", "01a20279-0000"])
async def test_a_beginning_of_no_job(bus, text) -> None:
    await Client(bus).dispatch(add(a=1), job_id="order")
    with pytest.raises(NotFound, match=text):
        await Client(bus).jobs.find_id(text)
