"""Winning jobs and losing them: two workers' claims, one broker in memory, a clock of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from tests.component.worker.given import QUEUE, settings
from tests.component.worker.unreliable import Unreliable
from tests.unit.jobs.telling import BROKEN

from penstock import telemetry
from penstock.bus.protocol import BusRefused, Delivery, Outgoing
from penstock.config.topology import pools
from penstock.events.envelope import Event, encode, utc_now
from penstock.events.job import JobDispatched
from penstock.jobs import Backoff, Client, job, registry
from penstock.jobs.lifecycle import State
from penstock.jobs.payloads import payload
from penstock.jobs.queues import queue_messages
from penstock.telemetry import spans
from penstock.testing.memory.bus import MemoryBus
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.claiming.claims import Claims
from penstock.worker.core.company import Company
from penstock.worker.running.outcome import FinishedJob, Outcome
from penstock.worker.running.recording import Recorder

NOWHERE = "$JS.ACK.p_JOBS.q_none.1.1.1.0.0"
"""The ack subject of no queue."""


@job(queue=QUEUE)
def nothing() -> None: ...


@job(queue=QUEUE, backoff=Backoff(first_seconds=0))
def nothing_at_once() -> None: ...


@job(queue=QUEUE, backoff=Backoff(first_seconds=60))
def nothing_later() -> None: ...


@pytest.fixture(scope="module", autouse=True)
def known() -> Iterator[None]:
    jobs = (nothing, nothing_at_once, nothing_later)
    registry.REGISTRY.update({each.name: each for each in jobs})
    yield
    for each in jobs:
        registry.REGISTRY.pop(each.name, None)


class Side:
    """One worker's side: its claims, and its line to the broker."""

    def __init__(self, broker: Broker, name: str, bus: MemoryBus) -> None:
        self.bus = bus
        profile = pools(broker.settings)[QUEUE].profile
        self.claims = Claims(bus, broker.settings, profile, "h", name)
        self.recorder = Recorder(bus, self.claims, 1_000_000)

    async def take(self, most: int = 10) -> list[Delivery]:
        return await self.bus.puller(QUEUE).fetch(most, 0)

    async def win(self) -> list[ClaimedJob]:
        return await self.claims.win(await self.take(), Company(runs_one=True))

    async def complete(self, held: ClaimedJob) -> None:
        await self.recorder.record([FinishedJob(held, Outcome(result=b"\xc0"))])

    async def fail(self, held: ClaimedJob) -> None:
        await self.recorder.record([FinishedJob(held, Outcome(error=BROKEN))])


class Broker:
    def __init__(self, **jobs: Any) -> None:
        self.settings = settings(**jobs)
        self.now = utc_now().timestamp()
        self.line = Unreliable(self.settings, now=lambda: self.now)
        self.client = Client(self.line.client(), prefix="p")
        self.subjects = self.line.subjects
        self.a, self.b = Side(self, "a", self.line), Side(self, "b", self.line.client())

    def lapse(self) -> None:
        """Time passes until no claim stands."""
        self.now += 2
        self.line.tick()

    async def story(self, job_id: str) -> list[str]:
        view = await self.client.job(job_id)
        return [event.name if isinstance(event, Event) else "?" for _, event in view.events]

    async def dispatch(self, count: int = 1) -> list[str]:
        return await self.client.dispatch_many([nothing()] * count)

    async def double(self, job_id: str) -> None:
        """A second queue message, just like the first."""
        view = await self.client.job(job_id)
        headers = queue_messages.headers(job_id, view.events[0][0], 1, {})
        body = view.record.payload
        await self.line.append(Outgoing(self.subjects.queue(QUEUE), body, headers))

    async def letters(self) -> list[str]:
        found = await self.b.bus.history(self.subjects.dead_stream, self.subjects.dead("*", "*"))
        return [stored.subject.rpartition(".")[2] for stored in found]


@pytest.fixture
async def broker() -> Broker:
    return Broker()


async def test_a_win_carries_its_fencing_token(broker: Broker) -> None:
    ids = await broker.dispatch(3)
    won = await broker.a.win()
    assert [held.id for held in won] == ids
    records = [(await broker.client.job(each)).record for each in ids]
    assert [record.token for record in records] == [held.token for held in won]
    assert {(record.state, record.worker) for record in records} == {(State.RUNNING, "a")}
    assert [record.message for record in records] == [held.delivery.sequence for held in won]
    assert {held.tries for held in won} == {1}


async def test_a_job_whose_worker_was_lost_is_recovered(broker: Broker) -> None:
    [job_id] = await broker.dispatch()
    [lost] = await broker.a.win()
    broker.lapse()
    [won] = await broker.b.win()
    assert won.token > lost.token
    assert won.attempt == 1
    await broker.b.complete(won)
    await broker.a.complete(lost)
    story = ["JobDispatched", "JobStarted", "JobRecovered", "JobStarted", "JobCompleted"]
    assert await broker.story(job_id) == story
    assert (await broker.client.job(job_id)).record.worker == "b"


async def test_the_failure_of_a_lost_worker_is_dropped_too(broker: Broker) -> None:
    [job_id] = await broker.dispatch()
    [lost] = await broker.a.win()
    broker.lapse()
    [won] = await broker.b.win()
    await broker.a.fail(lost)
    assert (await broker.client.job(job_id)).state is State.RUNNING
    await broker.b.complete(won)
    assert (await broker.client.job(job_id)).state is State.COMPLETED
    assert await broker.letters() == []


async def test_a_late_completion_does_not_take_the_claim_of_another(broker: Broker) -> None:
    """Acknowledgements are not fenced: only one that was recorded may be sent."""
    await broker.dispatch()
    [lost] = await broker.a.win()
    broker.lapse()
    [won] = await broker.b.win()
    await broker.a.complete(lost)
    assert (await broker.line.depths())[QUEUE].claimed == 1
    await broker.b.complete(won)
    assert (await broker.line.depths())[QUEUE].claimed == 0


async def test_a_late_ack_of_a_failed_attempt_does_not_take_the_message_of_the_next() -> None:
    """It comes late when the broker or the worker was away, and the old message comes again."""
    broker = Broker(tries=2)
    [job_id] = await broker.client.dispatch_many([nothing_at_once()])
    [failed] = await broker.a.win()
    await _failed_without_ack(broker.a, failed)
    broker.lapse()
    old = await broker.b.take(1)
    assert await broker.b.claims.win(old, Company(runs_one=True)) == []  # dropped
    [held] = await broker.b.win()
    assert held.delivery.sequence != failed.delivery.sequence
    await broker.a.bus.ack([failed.delivery])
    await broker.b.claims.release([held], "asked to end")
    [again] = await broker.b.win()
    assert (again.id, again.attempt) == (job_id, 2)


async def _failed_without_ack(side: Side, held: ClaimedJob) -> None:
    taken, held.delivery = (
        held.delivery,
        msgspec.structs.replace(held.delivery, ack_subject=NOWHERE),
    )
    await side.fail(held)
    held.delivery = taken


async def test_a_late_release_does_not_take_the_claim_of_another(broker: Broker) -> None:
    """Give-backs are not fenced either."""
    [job_id] = await broker.dispatch()
    [lost] = await broker.a.win()
    broker.lapse()
    [won] = await broker.b.win()
    await broker.a.claims.release([lost], "asked to end")
    assert await broker.a.take() == []
    await broker.b.complete(won)
    assert (await broker.story(job_id))[-2:] == ["JobStarted", "JobCompleted"]


async def test_a_released_job_is_there_for_others_at_once(broker: Broker) -> None:
    [job_id] = await broker.dispatch()
    await broker.a.claims.release(await broker.a.win(), "asked to end")
    [won] = await broker.b.win()
    assert won.attempt == 1
    await broker.b.complete(won)
    story = ["JobDispatched", "JobStarted", "JobReleased", "JobStarted", "JobCompleted"]
    assert await broker.story(job_id) == story


async def test_doubles_of_a_running_job_are_dropped(broker: Broker) -> None:
    [job_id] = await broker.dispatch()
    [held] = await broker.a.win()
    for _ in range(3):
        await broker.double(job_id)
    assert await broker.b.win() == []
    assert (await broker.line.depths())[QUEUE].claimed == 1
    await broker.a.complete(held)
    await broker.double(job_id)
    assert await broker.b.win() == []
    assert await broker.story(job_id) == ["JobDispatched", "JobStarted", "JobCompleted"]


async def test_of_doubles_taken_together_one_wins(broker: Broker) -> None:
    [job_id] = await broker.dispatch()
    await broker.double(job_id)
    assert len(await broker.a.win()) == 1
    assert (await broker.line.depths())[QUEUE].claimed == 1


async def test_a_double_that_cannot_run_here_does_no_harm_to_the_run_elsewhere(
    broker: Broker,
) -> None:
    [job_id] = await broker.dispatch()
    [held] = await broker.a.win()
    await broker.double(job_id)
    del registry.REGISTRY[nothing.name]  # b is of another version
    try:
        assert await broker.b.win() == []
    finally:
        registry.REGISTRY[nothing.name] = nothing
    await broker.a.complete(held)
    assert (await broker.client.job(job_id)).state is State.COMPLETED


async def test_the_message_of_a_cancelled_job_is_dropped(broker: Broker) -> None:
    [job_id] = await broker.dispatch()
    await broker.client.cancel(job_id)
    assert await broker.a.win() == []
    depth = (await broker.line.depths())[QUEUE]
    assert (depth.waiting, depth.claimed) == (0, 0)


async def test_an_event_of_a_later_version_keeps_nobody_from_running_the_job(
    broker: Broker,
) -> None:
    [job_id] = await broker.dispatch()
    subject = broker.subjects.events("job", job_id, "JobBlessed")
    await broker.line.append(Outgoing(subject, b'{"type":"JobBlessed"}'))
    [held] = await broker.a.win()
    await broker.a.complete(held)
    assert await broker.story(job_id) == ["JobDispatched", "?", "JobStarted", "JobCompleted"]


async def test_a_job_that_keeps_losing_its_worker_is_poison() -> None:
    broker = Broker(max_lost_workers=3)
    [job_id] = await broker.dispatch()
    for _ in range(3):
        assert len(await broker.a.win()) == 1
        broker.lapse()
    assert await broker.b.win() == []
    view = await broker.client.job(job_id)
    assert (view.state, view.error.kind) == (State.DEAD, "poison")
    assert view.error.message == (
        "lost its worker 3 times in a row; the last time: worker a on h was lost: its claim lapsed"
    )
    assert await broker.letters() == [job_id]


# --- answers that get lost ------------------------------------------------------------------------
async def test_a_start_whose_answer_was_lost(broker: Broker) -> None:
    [job_id] = await broker.dispatch()
    broker.line.lost_answers = ["JobStarted"]
    assert await broker.a.win() == []
    [held] = await broker.a.win()  # given back, and recovered from nobody
    await broker.a.complete(held)
    assert (await broker.story(job_id)).count("JobCompleted") == 1


async def test_a_completion_whose_answer_was_lost(broker: Broker) -> None:
    [job_id] = await broker.dispatch()
    [held] = await broker.a.win()
    broker.line.lost_answers = ["JobCompleted"]
    await broker.a.complete(held)
    assert await broker.story(job_id) == ["JobDispatched", "JobStarted", "JobCompleted"]
    assert (await broker.line.depths())[QUEUE].claimed == 0


@pytest.mark.parametrize("lost", [[], ["JobFailed"], ["JobRetrying"], ["JobFailed", "JobRetrying"]])
async def test_a_failure_where_no_batch_is_taken_is_recorded_once_event_by_event(
    lost: list[str],
) -> None:
    broker = Broker(tries=2)
    [job_id] = await broker.client.dispatch_many([nothing_at_once()])
    [held] = await broker.a.win()
    broker.line.full_of_batches = True
    broker.line.lost_answers = list(lost)
    await broker.a.fail(held)
    story = ["JobDispatched", "JobStarted", "JobFailed", "JobRetrying"]
    assert await broker.story(job_id) == story
    [again] = await broker.b.win()
    assert again.attempt == 2


async def test_progress_whose_answer_was_lost(broker: Broker) -> None:
    """It was taken for somebody else's, and the job given away."""
    [job_id] = await broker.dispatch()
    [held] = await broker.a.win()
    broker.line.lost_answers = ["JobProgressed"]
    for done in (1, 2):
        held.live.progress = (done, 2)
        await broker.a.recorder.progress(held)
    assert not held.lost
    await broker.a.complete(held)
    story = ["JobDispatched", "JobStarted", "JobProgressed", "JobCompleted"]
    assert await broker.story(job_id) == story


@pytest.mark.parametrize("lost", ["JobRetrying", "JobDead"])
async def test_a_verdict_whose_answer_was_lost(lost: str) -> None:
    broker = Broker(tries=2 if lost == "JobRetrying" else 1)
    [job_id] = await broker.dispatch()
    [held] = await broker.a.win()
    broker.line.lost_answers = [lost]
    await broker.a.fail(held)
    assert await broker.story(job_id) == ["JobDispatched", "JobStarted", "JobFailed", lost]
    follows = {**await broker.line.count(broker.subjects.jobs_stream, "p.schedules.>")}
    assert len(follows) + len(await broker.letters()) == 1
    assert (await broker.line.depths())[QUEUE].claimed == 0


@pytest.mark.parametrize("where", ["schedule", "dead letter"])
async def test_what_follows_a_verdict_is_made_by_the_next_if_it_was_not(where: str) -> None:
    broker = Broker(tries=2 if where == "schedule" else 1)
    [job_id] = await broker.client.dispatch_many([nothing_later()])
    [held] = await broker.a.win()
    broker.line.refused = {job_id: BusRefused("full")}  # last token of its schedule and letter
    await broker.a.fail(held)
    assert (await broker.line.depths())[QUEUE].claimed == 1  # not acknowledged
    broker.line.refused = {}
    broker.lapse()
    assert await broker.b.win() == []
    follows = await broker.line.count(broker.subjects.jobs_stream, "p.schedules.>")
    assert len(follows) + len(await broker.letters()) == 1
    assert (await broker.line.depths())[QUEUE].claimed == 0


async def test_a_dead_letter_that_was_not_written_is_written_by_the_next(broker: Broker) -> None:
    [job_id] = await broker.dispatch()
    registry.REGISTRY.pop(nothing.name)
    try:
        broker.line.refused = {job_id: BusRefused("full")}
        assert await broker.a.win() == []
        assert await broker.letters() == []
        broker.line.refused = {}
        assert await broker.a.win() == []
        assert await broker.letters() == [job_id]
    finally:
        registry.REGISTRY[nothing.name] = nothing
    assert await broker.story(job_id) == ["JobDispatched", "JobDead"]


# --- reads that lag -------------------------------------------------------------------------------
async def test_a_replica_that_lags_loses_no_job(broker: Broker) -> None:
    """A history that is not there yet was taken for a job that never was."""
    broker.line.lags = True
    [released] = await broker.dispatch()
    await broker.a.claims.release(await broker.a.win(), "asked to end")
    [held] = await broker.a.win()
    await broker.a.fail(held)
    assert (await broker.story(released))[-1] == "JobDead"
    assert await broker.letters() == [released]


# --- what nobody should send ----------------------------------------------------------------------
async def test_rubbish_that_is_too_large_for_its_dead_letter_is_cut(broker: Broker) -> None:
    await broker.line.append(Outgoing(broker.subjects.queue(QUEUE), b"x" * 1_000_000))
    assert await broker.a.win() == []
    assert len(await broker.letters()) == 1
    assert (await broker.line.depths())[QUEUE].claimed == 0


@pytest.mark.parametrize("header", ["a\nb", "x" * 200_000, "\x00"])
async def test_a_trace_header_that_cannot_travel_is_left_out(broker: Broker, header: str) -> None:
    event = JobDispatched(job_id="a", queue=QUEUE, function=nothing.name, payload=b"")
    client = Client(broker.line, prefix="p")
    made = client.dispatcher.prepare(nothing(), "a")
    first = await broker.line.append(Outgoing(broker.subjects.event(event), encode(made)))
    delivery = Delivery(
        subject=broker.subjects.queue(QUEUE), body=made.payload,
        headers=queue_messages.headers("a", first, 1, {"traceparent": header}),
        ack_subject=NOWHERE, sequence=1, deliveries=1,
        stored_at=0, pending=0,
    )  # fmt: skip
    [held] = await broker.a.claims.win([delivery], Company(runs_one=True))
    await broker.a.complete(held)
    assert (await broker.client.job("a")).state is State.COMPLETED


@pytest.mark.parametrize(("most", "is_carried"), [(0, True), (1, False)])
async def test_events_of_a_job_beyond_the_bound_of_traces_carry_none(
    broker: Broker, most: int, is_carried: bool
) -> None:
    """Of two jobs of a traced dispatch, the second."""
    spans.use(TracerProvider().get_tracer("test"), traces_per_second=most)
    try:
        with telemetry.span("dispatch"):
            await broker.dispatch(2)
        for held in await broker.a.win():
            await broker.a.complete(held)
    finally:
        spans.use(None)
    subject = broker.subjects.events("job", "*", "JobCompleted")
    events = await broker.line.history(broker.subjects.events_stream, subject)
    assert ["traceparent" in event.headers for event in events] == [True, is_carried]


@pytest.mark.parametrize("sequence", ["0", "-1", str(2**63), "9" * 40])
async def test_a_sequence_that_cannot_be(broker: Broker, sequence: str) -> None:
    """Zero would make the start the first event of a job that nobody dispatched."""
    client = Client(broker.line, prefix="p")
    made = client.dispatcher.prepare(nothing(), "ghost")
    headers = {queue_messages.JOB: "ghost", queue_messages.SEQUENCE: sequence}
    await broker.line.append(Outgoing(broker.subjects.queue(QUEUE), made.payload, headers))
    assert await broker.a.win() == []
    assert await broker.line.count(broker.subjects.events_stream, ">") == {}
    assert len(await broker.letters()) == 1


FORGED_DISPATCH = {"type": "JobDispatched", "queue": QUEUE, "function": "x", "payload": ""}


@pytest.mark.parametrize("due_at", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"])
async def test_a_job_due_at_a_time_that_cannot_be_ends_no_worker(
    broker: Broker, due_at: str
) -> None:
    """Its message, made from another event, has the worker read the job's events."""
    [other] = await broker.dispatch()
    body = (await broker.client.job(other)).record.payload
    call = msgspec.structs.replace(payload.decode(body), id="forged")
    event = {**FORGED_DISPATCH, "job_id": "forged", "due_at": due_at}
    subject = broker.subjects.events("job", "forged", "JobDispatched")
    await broker.line.append(Outgoing(subject, msgspec.json.encode(event)))
    headers = queue_messages.headers("forged", 1_000, 1, {})
    message = Outgoing(broker.subjects.queue(QUEUE), payload.encode(call), headers)
    await broker.line.append(message)
    assert [held.id for held in await broker.a.win()] == [other]
    assert not await broker.a.take()
    assert len(await broker.letters()) == 1


async def test_a_message_that_cannot_be_handled_is_a_dead_letter(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is wrong with it: it would end each worker that takes it, one after the other."""
    [job_id] = await broker.dispatch()
    [held] = await broker.a.win()
    await broker.double(job_id)

    async def overflow(*_: object) -> None:
        raise OverflowError("date value out of range")

    monkeypatch.setattr(broker.b.claims.joblog, "read_checked", overflow)
    assert await broker.b.win() == []
    assert len(await broker.letters()) == 1
    assert not await broker.b.take()
    await broker.a.complete(held)
    assert (await broker.client.job(job_id)).record.state is State.COMPLETED


@pytest.mark.parametrize("header", [queue_messages.SEQUENCE, queue_messages.ATTEMPT])
async def test_numbers_of_a_header_have_bounds(broker: Broker, header: str) -> None:
    [job_id] = await broker.dispatch()
    body = (await broker.client.job(job_id)).record.payload
    headers = {**queue_messages.headers(job_id, 1, 1, {}), header: "1" + "0" * 400}
    await broker.a.win()
    await broker.line.append(Outgoing(broker.subjects.queue(QUEUE), body, headers))
    assert await broker.b.win() == []
