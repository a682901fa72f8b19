"""Transitions cut in two by a crash are finished; whole ones are left alone. Over both buses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.buses import both, on_both
from tests.installation import Connector, RunningService
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.protocol import Bus, BusUnavailable, Delivery, Expect, Outgoing
from penstock.config.profiles import PoolTable
from penstock.events.envelope import encode, utc_now
from penstock.events.job import (
    JobDead,
    JobError,
    JobEvent,
    JobFailed,
    JobReleased,
    JobRetrying,
    JobStarted,
)
from penstock.events.subjects import Subjects
from penstock.jobs import Client, Context, job
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import JobRecord
from penstock.jobs.queues import queue_messages
from penstock.orchestrator.app import Orchestrator
from penstock.orchestrator.reconciling import unacknowledged
from penstock.orchestrator.reconciling.completion import TransitionCompleter
from penstock.runtime.broker import Broker
from penstock.runtime.poison_messages import poison_count
from penstock.runtime.service import Service

AFTER_SECONDS = 0.6
FOREVER = float("inf")


@job(queue="reports", name="orchestrator_tests.rebuild")
def rebuild(context: Context, table: str) -> None: ...


class Cut(Exception):
    """The process died here."""


class Dying:
    """A bus whose process dies before it stores anything outside the event log."""

    def __init__(self, bus: Bus, events: str) -> None:
        self._bus, self._events = bus, events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def append(self, message: Outgoing) -> int:
        if not message.subject.startswith(self._events):
            raise Cut(message.subject)
        return await self._bus.append(message)

    async def append_many(self, messages: list[Outgoing]) -> list[Any]:
        if any(not message.subject.startswith(self._events) for message in messages):
            raise Cut
        return await self._bus.append_many(messages)


class Stage:
    """An orchestrator to be started and stopped, a client that works and one that dies midway."""

    def __init__(self, kind: str, make: MakeSettings) -> None:
        self.kind = kind
        self.settings = make(nats={"request_timeout_seconds": 1.0}, jobs={"claim_seconds": 2})
        self.subjects = Subjects(make.prefix)
        self.bus: Bus
        self.client: Client
        self.dying: Client
        self.orchestrator: Orchestrator
        self.cut: list[str] = []
        self.connect = Connector(kind, self.settings).connect
        self._running: RunningService | None = None

    async def open(self) -> None:
        self.bus = await self.connect()
        prefix = self.settings.prefix
        self.client = Client(self.bus, prefix=prefix)
        self.dying = Client(Dying(self.bus, f"{prefix}.events."), prefix=prefix)

    async def start(self, **options: Any) -> Orchestrator:
        def body(service: Service) -> Awaitable[None]:
            self.orchestrator = Orchestrator(service, **{"after_seconds": AFTER_SECONDS, **options})
            return self.orchestrator.run()

        bus = await self.connect()
        self._running = RunningService("orchestrator", self.settings, bus, body)
        return self.orchestrator

    async def stop(self) -> None:
        if self._running:
            running, self._running = self._running, None
            await running.stop()

    async def close(self) -> None:
        await self.stop()
        await self.bus.close()

    # --- what a crash leaves behind ---------------------------------------------------------------
    async def cut_dispatch(self, **options: Any) -> str:
        job_id = options.pop("job_id", None) or f"job-{len(self.cut)}"
        self.cut.append(job_id)
        with pytest.raises(Cut):
            await self.dying.dispatch(rebuild(table="orders"), job_id=job_id, **options)
        return job_id

    async def take(self, within: float = 5.0, queue_name: str = "reports") -> Delivery:
        puller = self.bus.puller(queue_name)
        try:
            found = await puller.fetch(1, within)
        finally:
            await puller.close()
        assert found, f"no job came on {queue_name!r} within {within:g} s"
        return found[0]

    async def run_until(self, delivery: Delivery, *events: JobEvent) -> None:
        """As a worker that won the job and then died: the start, and these events, nothing else."""
        job_id, sequence = (
            delivery.headers[queue_messages.JOB],
            int(delivery.headers[queue_messages.SEQUENCE]),
        )
        started = JobStarted(
            job_id=job_id, queue="reports", attempt=1, host="a", worker="w",
            message=delivery.sequence,
        )  # fmt: skip
        messages = [Outgoing(self.subjects.event(e), encode(e)) for e in (started, *events)]
        first = msgspec.structs.replace(
            messages[0], expect=Expect(sequence, self.subjects.job(job_id))
        )
        await self.bus.append_atomic([first, *messages[1:]])
        await self.bus.ack([delivery])

    async def state(self, job_id: str) -> str:
        return str((await self.client.job(job_id)).state)

    async def waiting(self, queue_name: str = "reports") -> int:
        await self.bus.ensure_queue(queue_name)
        return (await self.bus.depths())[queue_name].waiting

    async def settled(self) -> None:
        """Nothing is left that the orchestrator waits for."""
        await eventually(
            lambda: self.orchestrator.table.position and not self.orchestrator.table, 8
        )

    async def looked_at(self, job_id: str) -> None:
        """The orchestrator was patient with a job, looked, and left it alone."""

        def is_put_off() -> bool:
            table = self.orchestrator.table
            entry = next((e for e in table.due(FOREVER) if e.job_id == job_id), None)
            if entry is None:
                return table.position > 0
            return entry.check_at > entry.since + 1.5 * table.patience_seconds

        await eventually(is_put_off, 8)


@pytest.fixture(params=both("nats"))
async def stage(request: pytest.FixtureRequest, settings: MakeSettings) -> AsyncIterator[Stage]:
    found = Stage(request.param, settings)
    await found.open()
    yield found
    await found.close()


async def test_a_dispatch_without_its_queue_message(stage: Stage) -> None:
    await stage.start()
    job_id = await stage.cut_dispatch()
    delivery = await stage.take()
    assert delivery.headers[queue_messages.JOB] == job_id
    await stage.run_until(delivery)  # the compare-and-set holds
    assert await stage.state(job_id) == "running"
    await stage.settled()


async def test_a_job_that_cannot_be_handled_keeps_no_other_from_being_healed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    healer = TransitionCompleter.complete

    async def heal(self: TransitionCompleter, record: JobRecord) -> bool:
        if record.id == "odd":
            raise OverflowError("date value out of range")
        return await healer(self, record)

    monkeypatch.setattr(TransitionCompleter, "complete", heal)
    before = poison_count()
    await stage.start()
    await stage.cut_dispatch(job_id="odd")
    await eventually(lambda: poison_count() > before, 30)
    job_id = await stage.cut_dispatch()
    assert (await stage.take()).headers[queue_messages.JOB] == job_id


async def test_a_queue_that_is_emptied_again_and_again(stage: Stage) -> None:
    """A key that may dispatch can erase all queues: permissions do not see message headers."""
    await stage.start()
    job_id = await stage.client.dispatch(rebuild(table="a"))
    line = stage.subjects.queue("reports")

    def healed() -> int:
        return stage.orchestrator.reconciler.completer.completed

    for times in range(1, 4):
        await stage.bus.remove(stage.subjects.jobs_stream, line)
        await eventually(lambda n=times: healed() == n, 30)
    delivery = await stage.take()
    assert delivery.headers[queue_messages.JOB] == job_id
    await stage.run_until(delivery)
    await stage.settled()


async def test_invented_jobs_keep_no_queue_of_the_settings_from_its_messages(stage: Stage) -> None:
    job_id = await stage.client.dispatch(rebuild(table="a"))
    event = (await stage.client.job(job_id)).events[0][1]
    for number in range(60):
        invented = msgspec.structs.replace(event, job_id=f"i{number}", queue=f"invented-{number}")
        await stage.bus.append(Outgoing(stage.subjects.event(invented), encode(invented)))
    await stage.bus.remove(stage.subjects.jobs_stream, stage.subjects.queue("reports"))
    lost = await stage.cut_dispatch()
    pools = {"reports": PoolTable()}
    stage.settings = msgspec.structs.replace(stage.settings, pools=pools)
    await stage.start(most=30)
    assert {(await stage.take()).headers[queue_messages.JOB] for _ in range(2)} == {job_id, lost}


async def test_what_is_made_again_stays_in_the_jobs_trace(stage: Stage) -> None:
    await stage.start()
    event = (await stage.client.job(await stage.client.dispatch(rebuild(table="a")))).events[0][1]
    again = msgspec.structs.replace(event, job_id="traced")
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    await stage.bus.append(Outgoing(stage.subjects.event(again), encode(again), trace))
    await stage.run_until(await stage.take())
    assert (await stage.take()).headers["traceparent"] == trace["traceparent"]


async def test_a_delayed_dispatch_without_its_schedule(stage: Stage) -> None:
    await stage.start()
    due = utc_now() + timedelta(seconds=2)
    job_id = await stage.cut_dispatch(at=due)
    delivery = await stage.take()
    assert delivery.headers[queue_messages.JOB] == job_id
    assert datetime.fromtimestamp(delivery.stored_at, UTC) >= due - timedelta(seconds=0.1)


async def test_a_delayed_dispatch_far_ahead_is_looked_after_once(stage: Stage) -> None:
    await stage.start()
    whole = await stage.client.dispatch(rebuild(table="a"), delay=3600)
    cut = await stage.cut_dispatch(delay=3600)
    await stage.settled()
    for job_id in (whole, cut):
        subject = stage.subjects.schedule("reports", job_id)
        assert await stage.bus.last(stage.subjects.jobs_stream, subject)
    assert stage.orchestrator.reconciler.completer.completed == 1


async def test_a_retry_without_its_schedule(stage: Stage) -> None:
    await stage.start()
    job_id = await stage.client.dispatch(rebuild(table="a"))
    error, due = JobError(kind="ValueError", message="no"), utc_now() + timedelta(seconds=1.5)
    await stage.run_until(
        await stage.take(),
        JobFailed(job_id=job_id, queue="reports", attempt=1, error=error),
        JobRetrying(job_id=job_id, attempt=2, due_at=due),
    )
    delivery = await stage.take()
    assert (delivery.headers[queue_messages.JOB], delivery.headers[queue_messages.ATTEMPT]) == (
        job_id,
        "2",
    )


async def test_a_retry_whose_schedule_never_fires(stage: Stage) -> None:
    """A broker that is killed while it fires a schedule may keep it and not fire it again."""
    job_id = await stage.client.dispatch(rebuild(table="a"))
    error, due = JobError(kind="ValueError", message="no"), utc_now()
    await stage.run_until(
        await stage.take(),
        JobFailed(job_id=job_id, queue="reports", attempt=1, error=error),
        JobRetrying(job_id=job_id, attempt=2, due_at=due),
    )
    record = (await stage.client.job(job_id)).record
    far = msgspec.structs.replace(record, available_at=due + timedelta(days=1))
    await stage.bus.append(queue_messages.scheduled(stage.subjects, far, {}))
    await stage.start()
    delivery = await stage.take()
    assert (delivery.headers[queue_messages.JOB], delivery.headers[queue_messages.ATTEMPT]) == (
        job_id,
        "2",
    )
    await stage.run_until(delivery)
    await stage.settled()


async def test_a_death_without_its_letter(stage: Stage) -> None:
    await stage.start()
    job_id = await stage.client.dispatch(rebuild(table="a"))
    error = JobError(kind="ValueError", message="no")
    await stage.run_until(
        await stage.take(),
        JobFailed(job_id=job_id, queue="reports", attempt=1, error=error),
        JobDead(job_id=job_id, queue="reports", error=error),
    )
    subject = stage.subjects.dead("reports", job_id)
    stored = await eventually(lambda: stage.bus.last(stage.subjects.dead_stream, subject))
    letter = msgspec.json.decode(stored.body, type=queue_messages.DeadLetter)
    assert (letter.function, letter.error) == ("orchestrator_tests.rebuild", error)


@pytest.mark.parametrize("letter_is_left", [True, False])
async def test_a_new_life_without_its_message(stage: Stage, letter_is_left: bool) -> None:
    """Whoever retried a dead job died right after saying so, or after removing its letter."""
    await stage.start()
    job_id = await stage.client.dispatch(rebuild(table="a"))
    error = JobError(kind="ValueError", message="no")
    await stage.run_until(
        await stage.take(),
        JobFailed(job_id=job_id, queue="reports", attempt=1, error=error),
        JobDead(job_id=job_id, queue="reports", error=error),
    )
    stream, subject = stage.subjects.dead_stream, stage.subjects.dead("reports", job_id)
    letter = await eventually(lambda: stage.bus.last(stream, subject))
    with pytest.raises(Cut):
        await stage.dying.dead.retry(job_id)
    if letter_is_left:
        await stage.bus.append(Outgoing(subject, letter.body))
    delivery = await stage.take()
    record = (await stage.client.job(job_id)).record
    assert delivery.headers[queue_messages.JOB] == job_id
    assert delivery.headers[queue_messages.SEQUENCE] == str(record.sequence)
    assert (record.life, await stage.bus.last(stream, subject)) == (2, None)


async def test_a_letter_that_comes_after_its_job_was_revived_goes_again(stage: Stage) -> None:
    """A worker was frozen between the event of a death and its letter, and somebody retried."""
    await stage.start()
    job_id = await stage.client.dispatch(rebuild(table="a"))
    error = JobError(kind="ValueError", message="no")
    await stage.run_until(await stage.take(), JobDead(job_id=job_id, queue="reports", error=error))
    died = (await stage.client.job(job_id)).record
    await stage.client.retry(job_id)
    letter = queue_messages.dead_letter(stage.subjects, died, {})
    await stage.bus.append(letter)

    async def is_gone() -> bool:
        return await stage.bus.last(stage.subjects.dead_stream, letter.subject) is None

    await eventually(is_gone, 10)
    assert (await stage.client.job(job_id)).record.life == 2


async def test_jobs_that_wait_their_turn_are_left_alone(stage: Stage) -> None:
    """However long they wait: a line without workers is no crash."""
    await stage.start()
    await stage.client.dispatch_many([rebuild(table=str(n)) for n in range(50)])
    await eventually(lambda: len(stage.orchestrator.table) == 50)
    table = stage.orchestrator.table
    first = next(table.due(FOREVER)).check_at
    await eventually(lambda: next(table.due(FOREVER)).check_at > first + 2 * AFTER_SECONDS, 8)
    assert stage.orchestrator.reconciler.completer.completed == 0
    assert await stage.waiting() == 50


async def test_jobs_that_are_claimed_and_not_started_are_left_alone(stage: Stage) -> None:
    """As where the event log has no room for starts, or a queue goes on after a long pause."""
    await stage.start()
    await stage.client.dispatch_many([rebuild(table=str(n)) for n in range(30)])
    deliveries = [await stage.take() for _ in range(30)]
    job_id = await stage.cut_dispatch()
    table, healer = stage.orchestrator.table, stage.orchestrator.reconciler.completer
    await eventually(lambda: len(table) == 31)
    first = [entry.check_at for entry in table.due(FOREVER)][-2]

    async def looked_at() -> bool:
        await stage.bus.extend(deliveries)
        claimed = [entry for entry in table.due(FOREVER) if entry.job_id != job_id]
        return all(entry.check_at > first + 2 * AFTER_SECONDS for entry in claimed)

    await eventually(looked_at, 10)
    assert healer.completed == 1
    assert (await stage.take()).headers[queue_messages.JOB] == job_id


async def test_of_many_claimed_messages_some_are_read(stage: Stage) -> None:
    await stage.client.dispatch_many([rebuild(table="a")] * 120)
    puller = stage.bus.puller("reports")
    taken: list[Delivery] = []
    while len(taken) < 120:
        taken += await puller.fetch(120, 5.0)
    await puller.close()
    jobs = [one.headers[queue_messages.JOB] for one in taken]
    last = taken[-1].sequence
    whole = await unacknowledged.read(stage.bus, stage.subjects, "reports", 0.0, last)
    assert set(whole.jobs) == set(jobs) and whole.read_to is None
    assert not whole.may_hold("other", 0.0)
    part = await unacknowledged.read(stage.bus, stage.subjects, "reports", 0.0, last, most=50)
    assert set(part.jobs) == set(jobs[:100])
    assert part.read_to
    assert part.may_hold(jobs[0], 0.0)
    assert part.may_hold(jobs[-1], part.read_to + 0.1)
    assert not part.may_hold("other", part.read_to - 0.1)
    later = part.read_to + 60
    assert not (await unacknowledged.read(stage.bus, stage.subjects, "reports", later, last)).jobs


async def test_a_cut_job_behind_a_line_is_made_again_when_the_line_has_passed(
    stage: Stage,
) -> None:
    await stage.start()
    await stage.client.dispatch_many([rebuild(table=str(n)) for n in range(3)])
    job_id = await stage.cut_dispatch()
    for _ in range(3):
        await stage.run_until(await stage.take())
    assert (await stage.take()).headers[queue_messages.JOB] == job_id


@on_both
async def test_a_job_given_back_still_has_its_message(stage: Stage) -> None:
    await stage.start()
    job_id = await stage.client.dispatch(rebuild(table="a"))
    delivery = await stage.take()
    sequence = int(delivery.headers[queue_messages.SEQUENCE])
    started = JobStarted(
        job_id=job_id, queue="reports", attempt=1, host="a", worker="w", message=delivery.sequence
    )
    released = JobReleased(job_id=job_id, reason="shutdown")
    for event in (started, released):
        expect = Expect(sequence, stage.subjects.job(job_id))
        sequence = await stage.bus.append(
            Outgoing(stage.subjects.event(event), encode(event), {}, expect)
        )
    await stage.bus.give_back([delivery.ack_subject])
    await stage.looked_at(job_id)  # no worker is free to take it: it waits as a redelivery
    assert stage.orchestrator.reconciler.completer.completed == 0
    assert (await stage.take()).sequence == delivery.sequence


async def test_a_job_that_waits_for_its_key_is_left_alone(stage: Stage) -> None:
    await stage.start()
    await stage.client.dispatch(rebuild(table="a"))
    delivery = await stage.take()
    job_id, due = delivery.headers[queue_messages.JOB], utc_now() + timedelta(hours=1)
    await stage.bus.append(queue_messages.postponed(stage.subjects, delivery, job_id, due, {}))
    await stage.bus.ack([delivery])
    await stage.settled()
    assert stage.orchestrator.reconciler.completer.completed == 0


async def test_a_cancelled_job_is_not_brought_back(stage: Stage) -> None:
    job_id = await stage.cut_dispatch()
    await stage.client.cancel(job_id)
    await stage.start()
    await stage.settled()
    assert (await stage.waiting(), await stage.state(job_id)) == (0, "cancelled")


async def test_the_schedule_of_a_cancelled_job_is_removed(stage: Stage) -> None:
    await stage.start()
    job_id = await stage.client.dispatch(rebuild(table="a"), delay=3600)
    stream, schedule = stage.subjects.jobs_stream, stage.subjects.schedule("*", job_id)
    assert await stage.bus.last(stream, schedule)
    await stage.client.cancel(job_id)

    async def is_removed() -> bool:
        return await stage.bus.last(stream, schedule) is None

    await eventually(is_removed, 10, "the schedule's removal")


async def test_a_restart_goes_on_where_the_last_one_stood(stage: Stage) -> None:
    orchestrator = await stage.start()
    for _ in range(3):
        await stage.client.dispatch(rebuild(table="a"))
        await stage.run_until(await stage.take())
    await eventually(lambda: orchestrator.position.sequence > 5)
    job_id = await stage.cut_dispatch()
    await eventually(lambda: len(orchestrator.table) == 1)
    await stage.stop()
    later = await stage.cut_dispatch()  # while nobody is there
    again = await stage.start()
    taken = {(await stage.take()).headers[queue_messages.JOB] for _ in range(2)}
    assert taken == {job_id, later}
    assert again.position.sequence > 5


async def test_a_dead_letter_removed_on_purpose_stays_removed(stage: Stage) -> None:
    waits = await stage.client.dispatch(rebuild(table="a"), queue="slow")
    await stage.start()
    dead = await stage.client.dispatch(rebuild(table="a"))
    error = JobError(kind="ValueError", message="no")
    failure = JobFailed(job_id=dead, queue="reports", attempt=1, error=error)
    await stage.run_until(
        await stage.take(), failure, JobDead(job_id=dead, queue="reports", error=error)
    )
    subject = stage.subjects.dead("reports", dead)
    await eventually(lambda: stage.bus.last(stage.subjects.dead_stream, subject))
    await eventually(lambda: len(stage.orchestrator.table) == 1)  # the one that waits in line
    await stage.bus.remove(stage.subjects.dead_stream, subject)
    await stage.stop()
    await stage.start()
    assert (await stage.take(queue_name="slow")).headers[queue_messages.JOB] == waits
    after = await stage.cut_dispatch()
    assert (await stage.take()).headers[queue_messages.JOB] == after
    assert await stage.bus.last(stage.subjects.dead_stream, subject) is None


async def test_memory_is_bounded_and_all_are_made_again(stage: Stage) -> None:
    cut = {await stage.cut_dispatch() for _ in range(40)}
    orchestrator = await stage.start(most=8)
    taken: set[str] = set()

    async def all_came() -> bool:
        assert len(orchestrator.table) <= 8
        puller = stage.bus.puller("reports")
        found = await puller.fetch(10, 0.2)
        await puller.close()
        for delivery in found:
            taken.add(delivery.headers[queue_messages.JOB])
            await stage.run_until(delivery)
        return taken == cut

    await eventually(all_came, 20)


async def test_rubbish_in_the_log_disturbs_nothing(
    stage: Stage,
) -> None:
    await stage.start()
    for name in ("JobDispatched", "JobDead", "JobRetrying", "JobReleased"):
        for number, rubbish in enumerate((b"", b"\xff", b"[]", b'{"type":"%s"}' % name.encode())):
            subject = stage.subjects.events("job", f"bad-{name}-{number}", name)
            await stage.bus.append(Outgoing(subject, rubbish))
    odd = b'{"type":"JobDispatched","job_id":"odd","queue":"a.>","function":"f","payload":""}'
    await stage.bus.append(Outgoing(stage.subjects.events("job", "odd", "JobDispatched"), odd))
    job_id = await stage.cut_dispatch()
    delivery = await stage.take()
    assert delivery.headers[queue_messages.JOB] == job_id
    await stage.run_until(delivery)
    await stage.settled()


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("JobStarted", b""),
        ("JobCancelled", b'{"type":"JobCancelled","job_id":"another","reason":""}'),
        ("JobProgressed", b""),
        ("JobDispatched", encode(JobReleased(job_id="another", reason=""))),
    ],
)
async def test_rubbish_behind_a_cut_dispatch_does_not_keep_it_from_being_made_again(
    stage: Stage, name: str, body: bytes
) -> None:
    await stage.start()
    job_id = await stage.cut_dispatch()
    await stage.bus.append(Outgoing(stage.subjects.events("job", job_id, name), body))
    delivery = await stage.take()
    assert delivery.headers[queue_messages.JOB] == job_id
    await stage.run_until(delivery)
    assert await stage.state(job_id) == "running"


async def test_a_forged_start_behind_a_death_does_not_keep_its_letter_from_being_written(
    stage: Stage,
) -> None:
    await stage.start()
    job_id = await stage.client.dispatch(rebuild(table="a"))
    error = JobError(kind="ValueError", message="no")
    await stage.run_until(
        await stage.take(),
        JobFailed(job_id=job_id, queue="reports", attempt=1, error=error),
        JobDead(job_id=job_id, queue="reports", error=error),
    )
    forged = JobStarted(job_id=job_id, queue="reports", attempt=2, host="h", worker="thief")
    await stage.bus.append(Outgoing(stage.subjects.event(forged), encode(forged)))
    subject = stage.subjects.dead("reports", job_id)
    assert await eventually(lambda: stage.bus.last(stage.subjects.dead_stream, subject))


async def test_a_broker_that_comes_back_is_reconciled(
    broker: Broker, settings: MakeSettings
) -> None:
    stage = Stage("nats", settings)
    await stage.open()
    try:
        await stage.start()
        job_id = await stage.cut_dispatch()
        broker.restart()
        delivery = await eventually(lambda: _taken(stage), 15)
        assert delivery.headers[queue_messages.JOB] == job_id
    finally:
        await stage.close()


async def _taken(stage: Stage) -> Delivery | None:
    try:
        found = await stage.bus.puller("reports").fetch(1, 0.5)
    except BusUnavailable:
        return None
    return found[0] if found else None


async def test_a_record_is_read_like_a_worker_reads_it(stage: Stage) -> None:
    """The healer's message is the very message that the client would have stored."""
    await stage.start()
    whole = await stage.client.dispatch(rebuild(table="a"))
    delivery = await stage.take()
    record = await JobLog(stage.bus, stage.subjects).read(whole)
    assert record is not None
    made = queue_messages.follow_up(stage.subjects, record, utc_now(), {})
    assert made is not None
    assert (made.subject, made.body) == (delivery.subject, delivery.body)
    assert {**made.headers} == {k: delivery.headers[k] for k in made.headers}
