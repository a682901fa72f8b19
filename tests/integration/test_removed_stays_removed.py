"""What was removed stays removed when the broker is killed, however often it was replaced before.

nats-server keeps no trace of a message that was replaced: see docs/decisions/0047.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus import records
from penstock.bus.nats import NatsBus, connect
from penstock.bus.protocol import Outgoing
from penstock.events.batch import BatchCreated
from penstock.events.envelope import encode
from penstock.events.job import JobDead, JobError, JobStarted
from penstock.events.subjects import Subjects
from penstock.jobs import Client, NotFound, job
from penstock.jobs.batches import batch_record
from penstock.jobs.job_log import JobLog
from penstock.jobs.running.checkpoints import Checkpoint, Checkpoints
from penstock.jobs.workflows.declared import reading
from penstock.jobs.workflows.declared.definition import Definition
from penstock.orchestrator.core.batch import Batch
from penstock.orchestrator.workflows.snapshots import WorkflowSnapshots
from penstock.runtime.broker import Broker

SELDOM = "0 0 1 1 *"
DEFINITION = """
name = "{name}"
version = {version}
queue = "clock"

[[steps]]
name = "one"
function = "removal_tests.tell"
arguments = {{ word = "a" }}
"""


@job(queue="clock", name="removal_tests.tell")
def tell(word: str) -> str:
    return word


@pytest.fixture
async def bus(settings: MakeSettings, broker: Broker) -> AsyncIterator[NatsBus]:
    """Connected; each stream holds an older message, behind which traces of removals matter."""
    made = settings(nats={"request_timeout_seconds": 1})
    connected = await connect(made, makes_streams=True)
    subjects = connected.subjects
    for subject in (
        subjects.state("test", "older"),
        subjects.key("test", "older"),
        subjects.checkpoint("older"),
        subjects.dead("clock", "older"),
        subjects.schedule("clock", "older"),
    ):
        await connected.append(Outgoing(subject, b"older"))
    yield connected
    await connected.close()


async def killed(broker: Broker, bus: NatsBus) -> None:
    """Returns when the broker was killed, and serves again."""
    broker.restart()

    async def serves() -> bool:
        try:
            return bool(await bus.last(bus.subjects.state_stream, bus.subjects.state("test", "*")))
        except Exception:
            return False

    await eventually(serves, 20, "the broker's answer")


def definition(name: str, version: int = 1) -> Definition:
    return reading.from_toml(DEFINITION.format(name=name, version=version))


async def test_removed_schedules_and_definitions(
    settings: MakeSettings, broker: Broker, bus: NatsBus
) -> None:
    client = Client.over(bus, settings())
    for name in ("gone", "again", "paused"):
        await client.schedules.add(name, tell(word="secret"), SELDOM)
        for version in (1, 2):
            await client.definitions.define(definition(name, version))
    await client.schedules.pause("paused")
    await client.schedules.resume("paused")
    for name in ("gone", "again", "paused"):
        await client.schedules.remove(name)
        await client.definitions.remove(name)
    await client.schedules.add("again", tell(word="b"), SELDOM)
    await client.definitions.define(definition("again", 1))
    for _ in range(2):
        await killed(broker, bus)
        assert [schedule.name for schedule in await client.schedules.all()] == ["again"]
        stored = await client.definitions.all()
        assert [(one.definition.name, one.definition.version) for one in stored] == [("again", 1)]
    for verb in (client.schedules.get, client.schedules.remove, client.definitions.get):
        with pytest.raises(NotFound):
            await verb("gone")
    mark = await bus.last(bus.subjects.state_stream, bus.subjects.state("schedule", "gone"))
    assert mark is not None
    assert b"removal_tests" not in mark.body, "nothing of the job stays"


async def test_a_deleted_dead_letter_that_two_processes_stored(
    settings: MakeSettings, broker: Broker, bus: NatsBus
) -> None:
    client, log = Client.over(bus, settings()), JobLog(bus, bus.subjects)
    job_id = await client.dispatch(tell(word="a"))
    about = {"job_id": job_id, "queue": "clock"}
    for event in (
        JobStarted(**about, attempt=1, host="h", worker="w"),
        JobDead(**about, error=JobError(kind="builtins.ValueError", message="no")),
    ):
        record = await log.read(job_id)
        assert record is not None
        await log.append_if(record, event)
    record = await log.read(job_id)
    assert record is not None
    for _ in range(2):
        await log.follow_up(record, {})
    await client.dead.delete(job_id)
    await killed(broker, bus)
    with pytest.raises(NotFound):
        await client.dead.get(job_id)


async def test_what_is_purged_from_queues_stays_removed(broker: Broker, bus: NatsBus) -> None:
    """Streams that limit no subject keep a trace of each removal: the mark is not needed there."""
    subjects = bus.subjects
    for job_id in ("purged", "deleted"):
        for body in (b"1", b"2", b"3"):
            last = await bus.append(Outgoing(subjects.schedule("clock", job_id), body))
    await bus.remove(subjects.jobs_stream, subjects.schedule("clock", "purged"))
    await bus.remove_message(subjects.jobs_stream, last)
    before = await bus.count(subjects.jobs_stream, ">")
    await killed(broker, bus)
    assert await bus.count(subjects.jobs_stream, ">") == before


async def test_a_record_is_removed_for_good_by_a_mark_alone(broker: Broker, bus: NatsBus) -> None:
    """The trap itself: where this fails, nats-server keeps traces, and marks may go."""
    subjects, stream = bus.subjects, bus.subjects.state_stream
    for name in ("purged", "marked"):
        for body in (b"1", b"2", b"3"):
            await bus.append(Outgoing(subjects.state("test", name), body))
    await bus.remove(stream, subjects.state("test", "purged"))
    stored = await bus.last(stream, subjects.state("test", "marked"))
    assert stored is not None
    assert await records.remove(bus, stored)
    await killed(broker, bus)
    purged = await bus.last(stream, subjects.state("test", "purged"))
    assert purged is not None
    assert purged.body == b"2"
    left = await records.read_all(bus, stream, subjects.state("test", "*"))
    assert {one.subject.rpartition(".")[2] for one in left} == {"older", "purged"}


async def test_a_snapshot_that_is_back_is_not_restored(broker: Broker, bus: NatsBus) -> None:
    """Its events have left the log: what is not in it would be dispatched anew."""
    subjects: Subjects = bus.subjects
    snapshots = WorkflowSnapshots(bus, subjects, "test")
    batches = {}
    for batch_id in ("ended", "living"):
        event = BatchCreated(source="test", batch_id=batch_id)
        sequence = await bus.append(Outgoing(subjects.event(event), encode(event)))
        batches["batch", batch_id] = Batch(batch_record.evolve(None, event, sequence), "test")
    for position in (2, 3, 4):
        for batch in batches.values():
            batch.position = position
        await snapshots.keep(position, batches)
    await snapshots.forget(("batch", "ended"))
    carried = batches["batch", "living"].carried(4)
    for _ in range(4):
        last = await bus.append(Outgoing(subjects.event(carried), encode(carried)))
    await bus.remove(subjects.events_stream, ">", last)
    await killed(broker, bus)
    back = await bus.last(subjects.state_stream, subjects.state("batch", "ended"))
    assert back is not None
    _, restored = await WorkflowSnapshots(bus, subjects, "test").load()
    assert set(restored) == {("batch", "living")}


async def test_a_checkpoint_that_is_back_is_one_of_its_job(broker: Broker, bus: NatsBus) -> None:
    """A job that has completed reads none; what is back takes storage until it ages."""
    checkpoints = Checkpoints(bus, bus.subjects, 1_000)
    sequence = 0
    for number in range(3):
        kept = Checkpoint(token=1, data=msgspec.Raw(msgspec.msgpack.encode(number)))
        sequence = await checkpoints.save("counting", kept, sequence)
    await checkpoints.remove("counting")
    await killed(broker, bus)
    _, back = await checkpoints.load("counting")
    assert back is None or back.token == 1
