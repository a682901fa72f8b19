"""Many jobs at once: each is cancelled or moved once, whatever happens in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.unit.jobs.telling import BROKEN

from penstock.bus.protocol import BusRefused, Outgoing
from penstock.config.load import check
from penstock.events.envelope import utc_now
from penstock.events.job import JobCancelled, JobFailed, JobReleased, JobRetrying, JobStarted
from penstock.jobs import Client, JobRefused, job, registry
from penstock.jobs.bulk.client import BulkOutcome, Effect
from penstock.jobs.errors import MissingKey
from penstock.jobs.job_filter import JobFilter
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import State
from penstock.jobs.payloads import payload
from penstock.jobs.payloads.encryption import KeyRing, arguments
from penstock.jobs.queues import queue_messages
from penstock.testing.memory.bus import MemoryBus
from penstock.worker.core.settle import Action, settle

SETTINGS = check({"pools": {"mails": {"priorities": True}, "slow": {}, "reports": {}}})
RING = KeyRing({"k": b"k" * 32})


@job(queue="mails", tags=["news"])
def mail(to: str) -> None: ...


@job(queue="reports", encrypted=True)
def secret(word: str) -> None: ...


@pytest.fixture(scope="module", autouse=True)
def known() -> Iterator[None]:
    registry.REGISTRY.update({kind.name: kind for kind in (mail, secret)})
    yield


class Installation:
    def __init__(self) -> None:
        self.bus = MemoryBus(settings=SETTINGS)
        self.subjects = self.bus.subjects
        self.client = Client.over(self.bus, SETTINGS)
        self.log = JobLog(self.bus, self.subjects)

    async def start(self, job_id: str) -> None:
        record = await self.log.read(job_id)
        assert record
        event = JobStarted(job_id=job_id, queue=record.queue, attempt=1, host="h", worker="w")
        assert await self.log.append_if(record, event)

    async def append(self, job_id: str, *events) -> None:
        for event in events:
            record = await self.log.read(job_id)
            assert record
            assert await self.log.append_if(record, event)

    async def state(self, job_id: str) -> State:
        return (await self.client.job(job_id)).state

    async def messages(self, queue: str) -> int:
        stream = self.subjects.jobs_stream
        waiting = await self.bus.history(stream, self.subjects.queue(queue))
        delayed = await self.bus.history(stream, self.subjects.schedule(queue, "*"))
        return len(waiting) + len(delayed)


@pytest.fixture
async def installation() -> Installation:
    return Installation()


async def effects(pages: AsyncIterator[list[BulkOutcome]]) -> Counter[str]:
    return Counter([outcome.effect.value async for page in pages for outcome in page])


# --- cancelling -----------------------------------------------------------------------------------
async def test_a_purge_cancels_what_waits_and_leaves_what_runs(installation: Installation) -> None:
    dispatch = installation.client.dispatch
    waiting = [await dispatch(mail(to=str(n)), priority="low" if n else "high") for n in range(3)]
    delayed = await dispatch(mail(to="x"), delay=60)
    running = await dispatch(mail(to="y"))
    other = await dispatch(mail(to="z"), queue="slow")
    await installation.start(running)

    done = await effects(installation.client.bulk.purge("mails", reason="old"))
    assert done == {"done": 4, "left": 1}
    for job_id in (*waiting, delayed):
        assert await installation.state(job_id) is State.CANCELLED
    assert await installation.state(running) is State.RUNNING
    assert await installation.state(other) is State.WAITING
    lanes = ("mails", "mails--low", "mails--high")
    assert [await installation.messages(lane) for lane in lanes] == [1, 0, 0]

    again = await effects(installation.client.bulk.purge("mails"))
    assert again == {"left": 1}


async def test_more_than_a_page_by_function_and_tag(installation: Installation) -> None:
    client = installation.client
    await client.dispatch_many([mail(to=str(n)) for n in range(450)], queue="slow")
    kept = await client.dispatch(mail(to="x"), tags=["keep"])
    assert (await client.bulk.count(JobFilter(function=mail.name))).jobs == 451
    matching = await client.bulk.count(JobFilter(tag="keep"))
    assert matching.groups == {("mails", mail.name): 1}
    some = JobFilter(function=mail.name, queues=("slow",))
    assert await effects(client.bulk.cancel(some, limit=250)) == {"done": 250}
    assert await effects(client.bulk.cancel(some)) == {"done": 200}
    assert await installation.state(kept) is State.WAITING


async def test_jobs_of_a_batch_or_schedule_and_old_ones(installation: Installation) -> None:
    client = installation.client
    batch = await client.batches.create([mail(to="a"), mail(to="b")])
    alone = await client.dispatch(mail(to="c"))
    await client.schedules.add("daily", mail(to="d"), "0 3 * * *")
    ticked = await client.schedules.run_now("daily")
    for matching, count in (
        (JobFilter(batch=batch), 2),
        (JobFilter(tag="schedule:daily"), 1),
        (JobFilter(tag="schedule:other"), 0),
        (JobFilter(dispatched_before=utc_now() - timedelta(hours=1)), 0),
        (JobFilter(dispatched_before=utc_now() + timedelta(hours=1)), 4),
    ):
        assert (await client.bulk.count(matching)).jobs == count, matching
    assert await effects(client.bulk.cancel(JobFilter(tag="schedule:daily"))) == {"done": 1}
    assert await installation.state(ticked) is State.CANCELLED
    assert await effects(client.bulk.cancel(JobFilter(batch=batch))) == {"done": 2}
    assert await installation.state(alone) is State.WAITING


async def test_running_jobs_are_cancelled_when_asked_for(installation: Installation) -> None:
    job_id = await installation.client.dispatch(mail(to="x"))
    await installation.start(job_id)
    notices: list[str] = []
    subject = installation.subjects.cancel_notice(job_id)
    await installation.bus.listen(subject, lambda subject, _: notices.append(subject))
    some = JobFilter(queues=("mails",))
    assert await effects(installation.client.bulk.cancel(some, running=True)) == {"done": 1}
    assert await installation.state(job_id) is State.CANCELLED
    assert notices == [subject]
    assert await installation.messages("mails") == 1  # its worker acknowledges it


async def test_a_job_that_was_given_back_is_cancelled_too(installation: Installation) -> None:
    """Its message is older than its last event."""
    job_id = await installation.client.dispatch(mail(to="x"))
    await installation.start(job_id)
    await installation.append(job_id, JobReleased(job_id=job_id, reason="drained"))
    assert await effects(installation.client.bulk.purge("mails")) == {"done": 1}
    assert await installation.state(job_id) is State.CANCELLED


async def test_several_at_once_cancel_each_job_once(installation: Installation) -> None:
    ids = await installation.client.dispatch_many([mail(to=str(n)) for n in range(100)])
    clients = [Client.over(installation.bus.client(), SETTINGS) for _ in range(4)]
    counts = await asyncio.gather(*(effects(one.bulk.purge("mails")) for one in clients))
    assert sum(count["done"] for count in counts) == 100
    for job_id in ids:
        events = [event for _, event in (await installation.client.job(job_id)).events]
        assert [event.name for event in events] == ["JobDispatched", "JobCancelled"]  # type: ignore[union-attr]
        assert isinstance(events[1], JobCancelled) and events[1].function == mail.name


async def test_what_an_interrupted_one_left_is_removed_by_the_next(
    installation: Installation,
) -> None:
    job_id = await installation.client.dispatch(mail(to="x"))
    await installation.client.cancel(job_id)  # killed before it removed the message
    assert await installation.messages("mails") == 1
    assert await effects(installation.client.bulk.purge("mails")) == {"void": 1}
    assert await installation.messages("mails") == 0


async def test_a_key_that_may_not_remove_messages_cancels_all_the_same(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object) -> None:
        raise BusRefused("permissions violation")

    monkeypatch.setattr(installation.bus, "remove_message", refused)
    job_id = await installation.client.dispatch(mail(to="x"))
    assert await effects(installation.client.bulk.purge("mails")) == {"done": 1}
    assert await installation.state(job_id) is State.CANCELLED


async def test_an_empty_filter_is_refused(installation: Installation) -> None:
    with pytest.raises(JobRefused, match="empty filter"):
        await effects(installation.client.bulk.cancel(JobFilter()))


# --- moving ---------------------------------------------------------------------------------------
async def test_jobs_are_moved_with_their_times_and_lanes(installation: Installation) -> None:
    dispatch = installation.client.dispatch
    waiting = await dispatch(mail(to="a"), queue="slow")
    delayed = await dispatch(mail(to="b"), queue="slow", delay=60)
    due = (await installation.client.job(delayed)).record.available_at
    running = await dispatch(mail(to="c"), queue="slow")
    await installation.start(running)

    moved = await effects(installation.client.bulk.move("slow", "reports", reason="faster"))
    assert moved == {"done": 2, "left": 1}
    assert await installation.messages("slow") == 1
    [delivery] = await installation.bus.puller("reports").fetch(10, 0)
    record = (await installation.client.job(waiting)).record
    assert (record.queue, record.state) == ("reports", State.WAITING)
    assert payload.decode(delivery.body).queue == "reports"
    assert delivery.headers[queue_messages.SEQUENCE] == str(record.sequence)
    record = (await installation.client.job(delayed)).record
    assert (record.queue, record.state, record.available_at) == ("reports", State.SCHEDULED, due)
    assert await installation.messages("reports") == 2

    assert await effects(installation.client.bulk.move("reports", "mails")) == {"done": 2}
    high = await dispatch(mail(to="d"), priority="high")
    assert await effects(installation.client.bulk.move("mails", "slow")) == {"done": 3}
    assert (await installation.client.job(high)).record.queue == "slow"


async def test_a_job_that_will_be_retried_keeps_its_attempts(installation: Installation) -> None:
    job_id = await installation.client.dispatch(mail(to="a"), queue="slow")
    await installation.start(job_id)
    due = utc_now() + timedelta(minutes=1)
    await installation.append(
        job_id,
        JobFailed(job_id=job_id, queue="slow", attempt=1, error=BROKEN),
        JobRetrying(job_id=job_id, attempt=2, due_at=due),
    )
    record = await installation.log.read(job_id)
    assert record
    await installation.log.follow_up(record, {})
    [first] = await installation.bus.puller("slow").fetch(1, 0)
    await installation.bus.ack([first])

    assert await effects(installation.client.bulk.move("slow", "reports")) == {"done": 1}
    record = await installation.log.read(job_id)
    assert record
    assert (record.state, record.next_attempt) == (State.RETRYING, 2)
    message = await installation.bus.last(
        installation.subjects.jobs_stream, installation.subjects.schedule("reports", job_id)
    )
    assert message
    action = settle(record, 99, record.sequence, 2, due + timedelta(seconds=1), 5)
    assert action is Action.START


async def test_a_message_of_the_queue_before_starts_nothing(installation: Installation) -> None:
    """A worker may hold it, or a schedule may fire, at the moment of the move."""
    job_id = await installation.client.dispatch(mail(to="a"), queue="slow")
    [before] = await installation.bus.puller("slow").fetch(1, 0)
    assert await effects(installation.client.bulk.move("slow", "reports")) == {"done": 1}
    record = await installation.log.read(job_id)
    assert record
    made_from = int(before.headers[queue_messages.SEQUENCE])
    assert settle(record, before.sequence, made_from, 1, utc_now(), 5) is Action.DROP
    await installation.client.dispatcher.sender.ensure_sent(
        (await installation.client.job(job_id)).events[0][1]  # type: ignore[arg-type]
    )
    assert await installation.messages("slow") == 0  # nor does a dispatch that is repeated


async def test_encrypted_arguments_are_sealed_for_the_other_queue(
    installation: Installation,
) -> None:
    installation.client.dispatcher.factory.ring = RING
    sealed = await installation.client.dispatch(secret(word="a"))
    started = await installation.client.dispatch(secret(word="b"))
    await installation.start(started)
    await installation.append(started, JobReleased(job_id=started, reason="drained"))
    assert await effects(installation.client.bulk.move("reports", "slow")) == {
        "done": 1,
        "left": 1,
    }
    call = payload.decode((await installation.client.job(sealed)).record.payload)
    assert secret.decode(arguments(call, RING)) == {"word": "a"}

    installation.client.dispatcher.factory.ring = KeyRing()
    [[outcome]] = [page async for page in installation.client.bulk.move("slow", "mails")]
    assert (outcome.effect, "need key" in outcome.text) == (Effect.LEFT, True)
    with pytest.raises(MissingKey):
        arguments(call, KeyRing())


# --- missing messages -----------------------------------------------------------------------------
async def moved_without_message(installation: Installation, **dispatch: Any) -> str:
    """A job whose move was killed after its event; an orchestrator stores its message later."""
    job_id = await installation.client.dispatch(mail(to="x"), queue="slow", **dispatch)
    assert await effects(installation.client.bulk.move("slow", "reports")) == {"done": 1}
    stream = installation.subjects.jobs_stream
    for subject in (
        installation.subjects.queue("reports"),
        installation.subjects.schedule("reports", job_id),
    ):
        for message in await installation.bus.history(stream, subject):
            await installation.bus.remove_message(stream, message.sequence)
    assert await installation.messages("reports") == 0
    return job_id


@pytest.mark.parametrize("dispatch", [{}, {"delay": 60}])
async def test_a_job_whose_move_was_cut_off_is_counted_and_cancelled(
    installation: Installation, dispatch: dict[str, Any]
) -> None:
    job_id = await moved_without_message(installation, **dispatch)
    for matching in (JobFilter(tag="news"), JobFilter(queues=("reports",))):
        found = await installation.client.bulk.count(matching)
        assert found.groups == {("reports", mail.name): 1}
    assert (await installation.client.bulk.count(JobFilter(tag="other"))).jobs == 0
    assert (await installation.client.bulk.count(JobFilter(queues=("slow",)))).jobs == 0
    cancelled = await effects(installation.client.bulk.cancel(JobFilter(tag="news")))
    assert cancelled == {"done": 1}
    assert await installation.state(job_id) is State.CANCELLED


async def test_a_job_whose_move_was_cut_off_is_moved_on(installation: Installation) -> None:
    await moved_without_message(installation)
    assert await effects(installation.client.bulk.move("reports", "slow")) == {"done": 1}
    assert await installation.messages("slow") == 1


async def test_what_was_moved_and_runs_or_has_its_message_is_found_once(
    installation: Installation,
) -> None:
    ids = [await installation.client.dispatch(mail(to=str(n)), queue="slow") for n in range(3)]
    assert await effects(installation.client.bulk.move("slow", "reports")) == {"done": 3}
    await installation.start(ids[0])
    await installation.client.cancel(ids[1])
    matching = await installation.client.bulk.count(JobFilter(tag="news"))
    assert matching.jobs == 3  # one of them by a message that is left over
    assert await effects(installation.client.bulk.cancel(JobFilter(tag="news"))) == {
        "left": 1,
        "void": 1,
        "done": 1,
    }


# --- forged messages ------------------------------------------------------------------------------
async def _forge(installation: Installation, job_id: str, on: str, **claims: str) -> None:
    """A message that names a job's first event, and a function or queue that are not the job's."""
    record = await installation.log.read(job_id)
    assert record
    call = msgspec.structs.replace(payload.decode(record.payload), **claims)
    headers = queue_messages.headers(job_id, record.sequence, 1, {})
    subject = installation.subjects.queue(on)
    await installation.bus.append(Outgoing(subject, payload.encode(call), headers))


async def test_a_forged_message_cancels_no_job_of_another_function_or_queue(
    installation: Installation,
) -> None:
    precious = await installation.client.dispatch(mail(to="x"), delay=60)
    await _forge(installation, precious, "slow", queue="slow", function="cheap.fn")
    cheap = JobFilter(function="cheap.fn")
    assert await effects(installation.client.bulk.cancel(cheap)) == {"left": 1}
    assert await effects(installation.client.bulk.purge("slow")) == {"left": 1}
    assert await installation.state(precious) is State.SCHEDULED


async def test_a_message_on_another_queue_than_it_names_is_passed_over(
    installation: Installation,
) -> None:
    precious = await installation.client.dispatch(mail(to="x"))
    await _forge(installation, precious, "slow")
    matching = await installation.client.bulk.count(JobFilter(queues=("slow", "mails")))
    assert matching.groups == {("mails", mail.name): 1}


async def test_a_forged_message_does_not_keep_the_jobs_of_its_queue_from_moving(
    installation: Installation,
) -> None:
    precious = await installation.client.dispatch(mail(to="x"))
    await _forge(installation, precious, "slow", queue="slow")
    honest = await installation.client.dispatch(mail(to="y"), queue="slow")
    pages = installation.client.bulk.move("slow", "reports")
    outcomes = {outcome.id: outcome.effect async for page in pages for outcome in page}
    assert outcomes == {precious: Effect.LEFT, honest: Effect.DONE}
    assert (await installation.client.job(precious)).record.queue == "mails"


async def test_to_the_same_queue_is_refused(installation: Installation) -> None:
    with pytest.raises(JobRefused, match="already"):
        await effects(installation.client.bulk.move("slow", "slow"))
