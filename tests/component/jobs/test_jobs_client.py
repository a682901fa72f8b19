"""The client over the in-memory bus: dispatching, asking, cancelling, running again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.unit.jobs.telling import BROKEN
from tests.waiting import eventually

from penstock.bus.protocol import BusUnavailable, Delivery, Outgoing, Stored
from penstock.config import Settings
from penstock.events.envelope import encode, utc_now
from penstock.events.job import (
    JobCompleted,
    JobDead,
    JobDispatched,
    JobEvent,
    JobProgressed,
    JobStarted,
)
from penstock.events.subjects import BadName
from penstock.jobs import AlreadyDispatched, Client, JobRefused, NotFound, UnknownJob, job, registry
from penstock.jobs.dispatch.job_factory import JobFactory
from penstock.jobs.errors import BadTime, PayloadTooLarge
from penstock.jobs.job_type import encode_result
from penstock.jobs.lifecycle import State
from penstock.jobs.payloads import payload
from penstock.jobs.queues import queue_messages
from penstock.testing.memory.bus import MemoryBus


@job(queue="reports", tags=["sales"], tries=4, timeout_seconds=9)
def count(table: str, limit: int = 0) -> dict[str, int]:
    return {table: limit}


@pytest.fixture(scope="module", autouse=True)
def known() -> Iterator[None]:
    registry.REGISTRY[count.name] = count
    yield
    del registry.REGISTRY[count.name]


class Broker:
    """A bus in memory, a client on it, and its clock."""

    def __init__(self) -> None:
        self.now = utc_now().timestamp()
        self.bus = MemoryBus("p", now=lambda: self.now)
        self.subjects = self.bus.subjects
        self.client = Client(self.bus, prefix="p", max_payload_bytes=10_000)

    async def queued(self, name: str = "reports") -> list[Delivery]:
        return await self.bus.puller(name).fetch(10_000, 0)

    async def scheduled(self, name: str = "reports") -> list[Stored]:
        return await self.bus.history(self.subjects.jobs_stream, self.subjects.schedule(name, "*"))

    async def events(self, job_id: str) -> list[str]:
        return [event.name for _, event in (await self.client.job(job_id)).events]  # type: ignore[union-attr]

    async def append(self, event: JobEvent) -> int:
        return await self.bus.append(Outgoing(self.subjects.event(event), encode(event)))

    async def started(self, job_id: str) -> None:
        await self.append(
            JobStarted(job_id=job_id, queue="reports", attempt=1, host="h", worker="w")
        )

    async def dead(self, job_id: str) -> None:
        await self.append(JobDead(job_id=job_id, queue="reports", error=BROKEN))
        record = (await self.client.job(job_id)).record
        await self.bus.append(queue_messages.dead_letter(self.subjects, record, {}))

    async def letters(self) -> list[Stored]:
        return await self.bus.history(self.subjects.dead_stream, self.subjects.dead("*", "*"))


@pytest.fixture
async def broker() -> Broker:
    return Broker()


async def test_a_dispatched_job_waits_in_its_queue(broker: Broker) -> None:
    job_id = await broker.client.dispatch(count(table="orders"), tags=["x", "sales"])
    view = await broker.client.job(job_id)
    assert (view.state, view.attempts, view.result, view.error) == (State.WAITING, 0, None, None)
    assert view.record.tags == ("sales", "x")
    [delivery] = await broker.queued()
    assert delivery.headers == {
        queue_messages.JOB: job_id,
        queue_messages.SEQUENCE: str(view.record.sequence),
    }
    sent = payload.decode(delivery.body)
    assert (sent.id, sent.function, sent.queue) == (job_id, count.name, "reports")
    assert (sent.tries, sent.timeout_seconds, sent.tags) == (4, 9, ("sales", "x"))
    assert count.decode(sent.arguments) == {"table": "orders", "limit": 0}


async def test_another_queue_than_the_function_s_own(broker: Broker) -> None:
    job_id = await broker.client.dispatch(count(table="x"), queue="urgent")
    assert (await broker.client.job(job_id)).record.queue == "urgent"
    assert len(await broker.queued("urgent")) == 1
    assert await broker.queued() == []


async def test_many_at_once_keep_their_order(broker: Broker) -> None:
    calls = [count(table="x", limit=n) for n in range(1203)]
    ids = await broker.client.dispatch_many(calls)
    assert len(set(ids)) == 1203
    by_id = {d.headers[queue_messages.JOB]: payload.decode(d.body) for d in await broker.queued()}
    sent = [count.decode(by_id[job_id].arguments)["limit"] for job_id in ids]
    assert sent == list(range(1203))
    assert await broker.client.dispatch_many([]) == []


async def test_many_at_once_have_the_terms_of_a_single_one(broker: Broker) -> None:
    calls = [count(table="x"), count(table="y")]
    ids = await broker.client.dispatch_many(calls, tags=["monthly"], delay=60, expires=120)
    views = [await broker.client.job(job_id) for job_id in ids]
    assert [view.state for view in views] == [State.SCHEDULED] * 2
    assert all("monthly" in view.tags for view in views)
    sent = payload.decode(views[0].record.payload)
    assert sent.expires_at == pytest.approx(views[0].record.available_at.timestamp() + 60, abs=1)
    assert await broker.queued() == []
    with pytest.raises(BadTime):
        await broker.client.dispatch_many(calls, delay=-1)
    with pytest.raises(ValueError, match="at most 10 tags"):
        await broker.client.dispatch_many(calls, tags=map(str, range(11)))


async def test_a_job_id_of_the_caller_s_own_is_dispatched_once(broker: Broker) -> None:
    assert await broker.client.dispatch(count(table="x"), job_id="nightly-7") == "nightly-7"
    with pytest.raises(AlreadyDispatched, match="nightly-7"):
        await broker.client.dispatch(count(table="x"), job_id="nightly-7")
    assert len(await broker.queued()) == 1
    assert await broker.events("nightly-7") == ["JobDispatched"]


async def test_together_only_one_of_an_id_is_taken(broker: Broker) -> None:
    dispatching = [broker.client.dispatch(count(table="x"), job_id="one") for _ in range(10)]
    found = await asyncio.gather(*dispatching, return_exceptions=True)
    assert found.count("one") == 1
    assert sum(isinstance(each, AlreadyDispatched) for each in found) == 9
    assert len(await broker.queued()) == 1


@pytest.mark.parametrize(
    "when",
    [
        {"delay": 60},
        {"delay": timedelta(minutes=1)},
        {"at": timedelta(minutes=1)},
    ],
)
async def test_a_delayed_job_is_kept_by_the_broker(broker: Broker, when: Any) -> None:
    if "at" in when:
        when = {"at": datetime.now(UTC) + when["at"]}
    job_id = await broker.client.dispatch(count(table="x"), **when)
    view = await broker.client.job(job_id)
    assert view.state is State.SCHEDULED
    assert abs((view.record.available_at - utc_now()).total_seconds() - 60) < 10
    assert await broker.queued() == []

    broker.now += 75
    broker.bus.tick()

    [delivery] = await broker.queued()
    assert delivery.headers[queue_messages.JOB] == job_id
    assert delivery.headers[queue_messages.SEQUENCE] == str(view.record.sequence)
    assert await broker.scheduled() == []


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ({"delay": -1}, "0 s to"),
        ({"delay": float("nan")}, "0 s to"),
        ({"delay": float("inf")}, "0 s to"),
        ({"delay": 1e30}, "a year"),
        ({"delay": timedelta(seconds=-1)}, "0 s to"),
        ({"at": datetime(2030, 1, 1)}, "time zone"),
        ({"at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 5}, "not both"),
    ],
)
async def test_a_time_that_cannot_be_meant(broker: Broker, when: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        await broker.client.dispatch(count(table="x"), **when)
    assert await broker.bus.count(broker.subjects.events_stream, ">") == {}


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"queue": "a.b"}, BadName),
        ({"queue": "*"}, BadName),
        ({"queue": "x" * 65}, BadName),
        ({"job_id": "a.b"}, BadName),
        ({"job_id": "with blank"}, BadName),
        ({"tags": ["x" * 101]}, ValueError),
        ({"tags": [f"t{n}" for n in range(10)]}, ValueError),
    ],
)
async def test_what_is_refused_leaves_nothing(broker: Broker, how: Any, error: Any) -> None:
    with pytest.raises(error):
        await broker.client.dispatch(count(table="x"), **how)
    assert await broker.bus.count(broker.subjects.events_stream, ">") == {}
    assert await broker.bus.count(broker.subjects.jobs_stream, ">") == {}


async def test_a_job_in_place_of_a_call_is_refused_with_what_was_meant(broker: Broker) -> None:
    with pytest.raises(JobRefused, match=r"dispatch takes a call, .*count\(\.\.\.\)"):
        await broker.client.dispatch(count)  # type: ignore[arg-type]


async def test_a_priority_that_does_not_exist_is_refused_before_the_queue(broker: Broker) -> None:
    with pytest.raises(JobRefused, match="one of high, normal, low, found 'urgent'"):
        await broker.client.dispatch(count("orders"), priority="urgent")  # type: ignore[arg-type]


async def test_a_length_of_time_as_text_is_refused(broker: Broker) -> None:
    with pytest.raises(BadTime, match="seconds or a timedelta, found '1h'"):
        await broker.client.dispatch(count("orders"), expires="1h")  # type: ignore[arg-type]


async def test_a_call_that_is_too_large(broker: Broker) -> None:
    with pytest.raises(PayloadTooLarge, match="max_payload_bytes allows 10000; write large data"):
        await broker.client.dispatch(count(table="x" * 10_000))
    with pytest.raises(PayloadTooLarge):
        await broker.client.dispatch_many([count(table="x" * 10_000)])
    assert await broker.bus.count(broker.subjects.events_stream, ">") == {}


async def test_a_job_that_is_not_there(broker: Broker) -> None:
    for asking in (broker.client.job, broker.client.cancel, broker.client.retry):
        with pytest.raises(NotFound, match="nobody"):
            await asking("nobody")
    with pytest.raises(NotFound):
        await broker.client.wait("nobody", 1)
    with pytest.raises(BadName):
        await broker.client.job("*")


async def test_a_result_has_the_type_of_its_function(broker: Broker) -> None:
    job_id = await broker.client.dispatch(count(table="x"))
    await broker.started(job_id)
    result = encode_result({"x": 3})
    await broker.append(
        JobCompleted(job_id=job_id, queue="reports", attempt=1, run_seconds=1, result=result)
    )
    view = await broker.client.job(job_id)
    assert (view.state, view.result, view.attempts) == (State.COMPLETED, {"x": 3}, 1)


async def test_a_long_story_is_read_to_its_end(broker: Broker) -> None:
    """The bus cuts histories off; a job that tells its progress for hours is seen to end."""
    job_id = await broker.client.dispatch(count(table="x"))
    await broker.started(job_id)
    progress = [JobProgressed(job_id=job_id, done=n) for n in range(10_050)]
    subject = broker.subjects.event(progress[0])
    await broker.bus.append_many([Outgoing(subject, encode(each)) for each in progress])
    await broker.append(JobCompleted(job_id=job_id, queue="reports", attempt=1, run_seconds=1))
    view = await broker.client.job(job_id)
    assert (view.state, view.record.done, len(view.events)) == (State.COMPLETED, 10_049, 10_053)


class Lagging(MemoryBus):
    """Its bulk reads come from a replica that knows nothing yet (NATS ADR-31)."""

    async def history(self, stream: str, subject: str, limit: int = 1000) -> list[Stored]:
        return []


async def test_a_replica_that_lags_hides_nothing() -> None:
    client = Client(Lagging("p"), prefix="p")
    job_id = await client.dispatch(count(table="x"))
    assert (await client.job(job_id)).state is State.WAITING


async def test_waiting_for_the_end(broker: Broker) -> None:
    job_id = await broker.client.dispatch(count(table="x"))
    waiting = asyncio.create_task(broker.client.wait(job_id, 5))
    await broker.started(job_id)
    await asyncio.sleep(0)
    assert not waiting.done()
    await broker.append(JobCompleted(job_id=job_id, queue="reports", attempt=1, run_seconds=1))
    assert (await waiting).state is State.COMPLETED
    assert (await broker.client.wait(job_id)).state is State.COMPLETED


async def test_waiting_gives_up(broker: Broker) -> None:
    job_id = await broker.client.dispatch(count(table="x"))
    with pytest.raises(TimeoutError):
        await broker.client.wait(job_id, 0.05)


class Away(MemoryBus):
    """Answers nothing for a while."""

    away = 0

    async def count(self, stream: str, subject: str) -> dict[str, int]:
        if self.away:
            self.away -= 1
            raise BusUnavailable("no answer")
        return await super().count(stream, subject)


async def test_waiting_outlasts_a_broker_that_is_away() -> None:
    bus = Away("p")
    client = Client(bus, prefix="p")
    job_id = await client.dispatch(count(table="x"))
    bus.away = 1
    waiting = asyncio.create_task(client.wait(job_id, 5))
    await eventually(lambda: not bus.away)
    await client.cancel(job_id)
    assert (await waiting).state is State.CANCELLED


@pytest.mark.parametrize("delay", [0, 60])
async def test_cancelling_what_has_not_begun(broker: Broker, delay: float) -> None:
    notices: list[str] = []
    await broker.bus.listen(
        broker.subjects.cancel_notice("*"), lambda subject, _: notices.append(subject)
    )
    job_id = await broker.client.dispatch(count(table="x"), delay=delay)
    view = await broker.client.cancel(job_id, "not wanted")
    assert view.state is State.CANCELLED
    assert await broker.events(job_id) == ["JobDispatched", "JobCancelled"]
    assert notices == [broker.subjects.cancel_notice(job_id)]


async def test_cancelling_twice_says_so_once(broker: Broker) -> None:
    job_id = await broker.client.dispatch(count(table="x"))
    views = await asyncio.gather(*(broker.client.cancel(job_id) for _ in range(5)))
    assert {view.state for view in views} == {State.CANCELLED}
    assert await broker.events(job_id) == ["JobDispatched", "JobCancelled"]


async def test_a_job_that_ended_keeps_its_end(broker: Broker) -> None:
    job_id = await broker.client.dispatch(count(table="x"))
    await broker.started(job_id)
    await broker.append(JobCompleted(job_id=job_id, queue="reports", attempt=1, run_seconds=1))
    assert (await broker.client.cancel(job_id)).state is State.COMPLETED


async def test_a_dead_job_goes_again_under_its_own_id(broker: Broker) -> None:
    old = await broker.client.dispatch(count(table="orders", limit=7), queue="urgent", tags=["x"])
    await broker.queued("urgent")
    await broker.dead(old)
    [_] = await broker.letters()
    await broker.client.retry(old)
    view = await broker.client.job(old)
    assert (view.state, view.record.life, view.record.queue) == (State.WAITING, 2, "urgent")
    assert view.record.tags == ("sales", "x")
    [delivery] = await broker.queued("urgent")
    assert delivery.headers[queue_messages.SEQUENCE] == str(view.record.sequence)
    sent = payload.decode(delivery.body)
    assert (sent.id, sent.tries) == (old, 4)
    assert count.decode(sent.arguments) == {"table": "orders", "limit": 7}
    assert await broker.letters() == []


async def test_only_dead_and_cancelled_jobs_run_again(broker: Broker) -> None:
    job_id = await broker.client.dispatch(count(table="x"))
    with pytest.raises(JobRefused, match="waiting; only dead or cancelled"):
        await broker.client.retry(job_id)
    await broker.client.cancel(job_id)
    await broker.client.retry(job_id)
    assert (await broker.client.job(job_id)).state is State.WAITING


async def test_a_result_of_a_function_that_is_not_registered_here(broker: Broker) -> None:
    job_id = await broker.client.dispatch(count(table="x"))
    event = JobDispatched(job_id="other", queue="reports", function="no.such", payload=b"")
    await broker.append(event)
    await broker.started("other")
    result = msgspec.msgpack.encode([1, 2])
    await broker.append(
        JobCompleted(job_id="other", queue="reports", attempt=1, run_seconds=1, result=result)
    )
    assert (await broker.client.job("other")).result == [1, 2]
    assert (await broker.client.job(job_id)).result is None


async def test_functions_that_no_worker_can_import_are_refused_where_others_run_them() -> None:
    @job(queue="reports")
    def inner() -> None: ...

    script: dict[str, Any] = {"__name__": "__main__"}
    source = "from penstock.jobs import job\n@job(queue='reports')\ndef hello() -> None: ...\n"
    exec(source, script)
    hello, bus, settings = script["hello"], MemoryBus("p"), Settings(prefix="p")
    remote = Client(bus, prefix="p", factory=JobFactory.from_settings(settings, "client"))
    try:
        with pytest.raises(UnknownJob, match=r"__main__\.hello: .* jobs\.modules"):
            await remote.dispatch(hello())
        with pytest.raises(UnknownJob, match=r"inner: .* inside another one"):
            await remote.batches.create([inner()])
        await Client.over(bus, settings).dispatch(inner())  # workers in this process know it
    finally:
        for kind in (inner, hello):
            del registry.REGISTRY[kind.name]
