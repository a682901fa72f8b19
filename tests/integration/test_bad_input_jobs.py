"""What no worker should ever be sent: it is put aside with the reason, and the worker goes on."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import msgspec
import pytest
from tests.buses import both
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import connect
from penstock.bus.protocol import Bus, Outgoing
from penstock.cli.jobs.job_view import description
from penstock.config import Settings
from penstock.events.envelope import encode
from penstock.events.job import JobCompleted, JobDispatched
from penstock.events.subjects import Subjects
from penstock.jobs import Client, job, registry
from penstock.jobs.lifecycle import State
from penstock.jobs.payloads import payload
from penstock.jobs.queues import queue_messages
from penstock.jobs.queues.queue_messages import DeadLetter
from penstock.testing.memory.bus import MemoryBus
from penstock.worker.app import without_executor
from penstock.worker.loop import Worker
from penstock.worker.parts import assemble

QUEUE = "reports"


@job(queue=QUEUE, tries=1)
def double(number: int) -> int:
    return 2 * number


GO, ALLOWED = threading.Event(), threading.Event()


@job(queue=QUEUE, tries=1)
def linger() -> str:
    GO.wait(10)
    return "done"


@job(queue=QUEUE, tries=1)
def refuse() -> None:
    if not ALLOWED.is_set():
        raise ValueError("not yet")


class Stage:
    """A worker in this process, a client, and what becomes of what is sent."""

    def __init__(self, bus: Bus, worker_bus: Bus, settings: Settings) -> None:
        self.bus, self.subjects = bus, Subjects(settings.prefix)
        self.client = Client(bus, prefix=settings.prefix)
        self.worker = Worker(assemble(worker_bus, without_executor(settings, QUEUE)))
        self.running = asyncio.create_task(self.worker.run())

    async def send(self, body: bytes, job_id: str = "", sequence: str = "") -> int:
        headers = (
            {queue_messages.JOB: job_id, queue_messages.SEQUENCE: sequence}
            if job_id or sequence
            else {}
        )
        return await self.bus.append(Outgoing(self.subjects.queue(QUEUE), body, headers))

    def call(self, job_id: str, **changes: Any) -> bytes:
        usual = {
            "id": job_id,
            "function": double.name,
            "queue": QUEUE,
            "arguments": msgspec.Raw(msgspec.msgpack.encode({"number": 1})),
            "dispatched_at": 0.0,
        }
        return payload.encode(payload.Payload(**{**usual, **changes}))

    async def dispatched(self, job_id: str, **changes: Any) -> int:
        """The first event of a job, as a client of another version or a bad one might write it."""
        event = JobDispatched(
            job_id=job_id, queue=QUEUE, function=double.name, payload=self.call(job_id), **changes
        )
        return await self.bus.append(Outgoing(self.subjects.event(event), encode(event)))

    async def event(self, job_id: str, name: str, body: bytes) -> int:
        return await self.bus.append(Outgoing(self.subjects.events("job", job_id, name), body))

    async def dead_letters(self) -> list[DeadLetter]:
        found = await self.bus.history(self.subjects.dead_stream, self.subjects.dead("*", "*"))
        return [msgspec.json.decode(stored.body, type=DeadLetter) for stored in found]

    async def goes_on(self, deliveries: int) -> None:
        """A good job runs, nothing is left in the queue, and nothing went round and round."""
        view = await self.client.wait(await self.client.dispatch(double(number=21)), 10)
        assert (view.state, view.result) == (State.COMPLETED, 42)

        async def empty() -> bool:
            depth = (await self.bus.depths())[QUEUE]
            return depth.waiting == depth.claimed == 0

        await eventually(empty, 10, "an empty queue")
        assert (await self.bus.depths())[QUEUE].delivered <= deliveries + 1
        assert not self.running.done()
        assert not self.worker.stopping


@pytest.fixture(params=both("nats"))
async def stage(request: pytest.FixtureRequest, settings: MakeSettings) -> AsyncIterator[Stage]:
    found = settings(pools={QUEUE: {}}, jobs={"claim_seconds": 1})
    if request.param == "nats":
        clients: list[Any] = [await connect(found), await connect(found)]
    else:
        memory = MemoryBus(settings=found)
        clients = [memory, memory.client()]
    stage = Stage(clients[0], clients[1], found)
    yield stage
    stage.worker.stop("the test is over")
    await asyncio.wait_for(stage.running, 10)
    for client in clients:
        await client.close()


class Unpickled:
    """Would leave a trace if anybody unpickled it."""

    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('unpickled')",))


DEEP = b"\x82\xa4type\xaepenstock.job.1\xa1x" + b"\x91" * 200_000


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff\xfe", b"[]", b"{" * 1000, b"\x80", pickle.dumps(Unpickled()), DEEP],
    ids=["empty", "no text", "a list", "braces", "no fields", "a pickle", "too deep"],
)
async def test_a_body_that_is_no_job(stage: Stage, body: bytes) -> None:
    sequence = await stage.send(body, "a", "1")
    await stage.goes_on(deliveries=1)
    [letter] = await stage.dead_letters()
    assert (letter.job_id, letter.queue) == (f"message-{sequence}", QUEUE)
    assert (letter.payload, letter.error.kind) == (body, "malformed")
    assert letter.error.message.startswith("not a job message: ")


@pytest.mark.parametrize(
    ("job_id", "sequence"),
    [("", ""), ("a", ""), ("a", "x"), ("a", "-1"), ("a", "1" * 40), ("a.*.>", "1"), ("b", "1")],
)
async def test_headers_that_do_not_fit(stage: Stage, job_id: str, sequence: str) -> None:
    await stage.send(stage.call("a"), job_id, sequence)
    await stage.goes_on(deliveries=2)
    [letter] = await stage.dead_letters()
    assert letter.error.kind == "malformed"


async def test_a_message_of_a_job_that_was_never_dispatched(stage: Stage) -> None:
    await stage.send(stage.call("ghost"), "ghost", "7")
    await stage.goes_on(deliveries=1)
    [letter] = await stage.dead_letters()
    assert "no event of this job" in letter.error.message


async def test_a_function_that_is_not_registered(stage: Stage) -> None:
    body = stage.call("a", function="os.system")
    event = JobDispatched(job_id="a", queue=QUEUE, function="os.system", payload=body)
    first = await stage.bus.append(Outgoing(stage.subjects.event(event), encode(event)))
    await stage.send(body, "a", str(first))
    view = await stage.client.wait("a", 10)
    assert (view.state, view.error.kind) == (State.DEAD, "unknown-job")
    assert "no job is called 'os.system'" in view.error.message
    await stage.goes_on(deliveries=1)
    [letter] = await stage.dead_letters()
    assert (letter.job_id, letter.payload) == ("a", body)


async def test_arguments_of_the_wrong_type(stage: Stage) -> None:
    wrong = msgspec.Raw(msgspec.msgpack.encode({"number": "one"}))
    body = stage.call("a", arguments=wrong)
    event = JobDispatched(job_id="a", queue=QUEUE, function=double.name, payload=body)
    first = await stage.bus.append(Outgoing(stage.subjects.event(event), encode(event)))
    await stage.send(body, "a", str(first))
    view = await stage.client.wait("a", 10)
    assert (view.state, view.error.kind) == (State.DEAD, "bad-arguments")
    assert "Expected `int`, got `str` - at `$.number`" in view.error.message
    await stage.goes_on(deliveries=1)


@pytest.mark.parametrize(
    "rubbish",
    [b"", b"{}", b'{"type":"JobStarted"}', b'{"type":"X","x":' + b"[" * 200_000],
    ids=["empty", "no type", "no fields", "too deep"],
)
async def test_rubbish_among_the_events_of_a_job_is_passed_over(
    stage: Stage, rubbish: bytes
) -> None:
    first = await stage.dispatched("a")
    await stage.event("a", "JobStarted", rubbish)
    await stage.send(stage.call("a"), "a", str(first))
    view = await stage.client.wait("a", 10)
    assert (view.state, view.result) == (State.COMPLETED, 2)
    await stage.goes_on(deliveries=2)
    assert await stage.dead_letters() == []


@pytest.mark.parametrize("name", ["JobProgressed", "JobStarted", "JobCompleted", "JobBlessed"])
async def test_rubbish_while_a_job_runs_does_not_keep_its_end_from_being_recorded(
    stage: Stage, name: str
) -> None:
    GO.clear()
    job_id = await stage.client.dispatch(linger())

    async def runs() -> bool:
        return (await stage.client.job(job_id)).state is State.RUNNING

    await eventually(runs, 10, "a running job")
    completed = JobCompleted(job_id="another", queue=QUEUE, attempt=1, run_seconds=1.0)
    await stage.event(job_id, name, b"")
    await stage.event(job_id, name, encode(completed))
    GO.set()
    view = await stage.client.wait(job_id, 10)
    assert (view.state, view.result) == (State.COMPLETED, "done")
    assert description(view)[-3:-1] == [line for line in description(view) if "ignored" in line]
    await stage.goes_on(deliveries=1)
    assert await stage.dead_letters() == []


async def test_a_dead_job_is_retried_although_rubbish_follows_its_end(stage: Stage) -> None:
    job_id = await stage.client.dispatch(refuse())
    assert (await stage.client.wait(job_id, 10)).state is State.DEAD
    await eventually(stage.dead_letters, 10, "its dead letter")
    await stage.event(job_id, "JobStarted", b"")
    ALLOWED.set()
    await stage.client.dead.retry(job_id)
    assert (await stage.client.wait(job_id, 10)).state is State.COMPLETED
    ALLOWED.clear()


async def test_a_time_without_its_zone(stage: Stage) -> None:
    event = JobDispatched(
        job_id="a",
        queue=QUEUE,
        function=double.name,
        payload=stage.call("a"),
        due_at=datetime(2026, 1, 1),
    )
    await stage.bus.append(Outgoing(stage.subjects.event(event), encode(event)))
    await stage.send(stage.call("a"), "a", "1000000")
    await stage.goes_on(deliveries=2)
    [letter] = await stage.dead_letters()
    assert letter.error.kind == "malformed"


async def test_events_in_an_order_that_cannot_be(stage: Stage) -> None:
    early = JobCompleted(job_id="a", queue=QUEUE, attempt=1, run_seconds=1.0)
    await stage.bus.append(Outgoing(stage.subjects.event(early), encode(early)))
    first = await stage.dispatched("a")
    await stage.dispatched("a")
    await stage.send(stage.call("a"), "a", str(first))
    assert (await stage.client.wait("a", 10)).state is State.COMPLETED
    await stage.goes_on(deliveries=2)
    assert await stage.dead_letters() == []


async def test_a_job_whose_queue_cannot_be_a_subject(stage: Stage) -> None:
    body = stage.call("a", function="none.such", queue="x y.>")
    event = JobDispatched(job_id="a", queue="x y.>", function="none.such", payload=body)
    first = await stage.bus.append(Outgoing(stage.subjects.event(event), encode(event)))
    await stage.send(body, "a", str(first))
    await stage.goes_on(deliveries=2)
    assert len(await stage.dead_letters()) == 1


async def test_notices_of_jobs_that_are_not_there(stage: Stage) -> None:
    for body in (b"", b"\xff" * 1000):
        await stage.bus.signal(stage.subjects.cancel_notice("nobody"), body)
    await stage.goes_on(deliveries=0)


async def test_a_call_that_is_too_large_is_refused_at_dispatch(stage: Stage) -> None:
    @job(queue=QUEUE)
    def wants(text: str) -> None: ...

    with pytest.raises(Exception, match="write large data to a file"):
        await stage.client.dispatch(wants(text="x" * 600_000))
    del registry.REGISTRY[wants.name]
    await stage.goes_on(deliveries=0)
