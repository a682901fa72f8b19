"""Dead letters over the in-memory bus: found, grouped, retried once, deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from penstock.bus.protocol import BusUnavailable, Outgoing
from penstock.events.dead import DEAD_EVENTS
from penstock.events.envelope import encode
from penstock.events.job import JobDead, JobError, JobRevived, JobStarted
from penstock.jobs import BadArguments, Call, Client, JobRefused, NotFound, job, registry
from penstock.jobs.dead_letters.client import PAGE, Outcome
from penstock.jobs.dead_letters.letter import MOST_GROUPS, OTHERS, LetterFilter
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import State
from penstock.jobs.payloads import payload
from penstock.jobs.queues import queue_messages
from penstock.testing.memory.bus import MemoryBus

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@job(queue="reports", tags=["sales"])
def build(table: str, limit: int = 0) -> None: ...


@job(queue="mails")
def send(to: str) -> None: ...


@pytest.fixture(scope="module", autouse=True)
def known() -> Iterator[None]:
    for kind in (build, send):
        registry.REGISTRY[kind.name] = kind
    yield
    for kind in (build, send):
        del registry.REGISTRY[kind.name]


class Morgue:
    """A bus in memory, a client on it, and a way to die."""

    def __init__(self) -> None:
        self.bus = MemoryBus("p")
        self.subjects = self.bus.subjects
        self.client = Client(self.bus, prefix="p", max_payload_bytes=2_000)
        self.dead = self.client.dead

    async def dies(
        self, call: Call, kind: str = "builtins.ValueError", message: str = "no", age=0.0
    ) -> str:
        """The id of a job that was run from its message, and died ``age`` seconds before NOW."""
        job_id = await self.client.dispatch(call)
        await self.dies_again(job_id, kind, message, age)
        return job_id

    async def dies_again(
        self, job_id: str, kind: str = "builtins.ValueError", message: str = "no", age: float = 0.0
    ) -> None:
        record = (await self.client.job(job_id)).record
        await self.bus.ack(await self.bus.puller(record.queue).fetch(1, 0))
        at = NOW - timedelta(seconds=age)
        error = JobError(kind=kind, message=message)
        for event in (
            JobStarted(job_id=job_id, queue=record.queue, attempt=1, host="h", worker="w"),
            JobDead(job_id=job_id, queue=record.queue, error=error, at=at),
        ):
            await self.bus.append(Outgoing(self.subjects.event(event), encode(event)))
        record = (await self.client.job(job_id)).record
        await self.bus.append(queue_messages.dead_letter(self.subjects, record, {}))

    async def ids(self, **wanted: Any) -> list[str]:
        return [letter.job_id async for letter in self.dead.find(LetterFilter(**wanted))]

    async def waiting(self, name: str = "reports") -> list[payload.Payload]:
        found = await self.bus.puller(name).fetch(10_000, 0)
        return [payload.decode(delivery.body) for delivery in found]


@pytest.fixture
async def morgue() -> Morgue:
    return Morgue()


async def outcomes(pages: AsyncIterator[list[Outcome]]) -> list[Outcome]:
    return [outcome async for page in pages for outcome in page]


# --- looking --------------------------------------------------------------------------------------
async def test_letters_are_found_the_latest_first(morgue: Morgue) -> None:
    ids = [await morgue.dies(build(table=str(n))) for n in range(2 * PAGE + 3)]
    assert await morgue.ids() == ids[::-1]
    assert await morgue.dead.count() == len(ids)


async def test_each_filter(morgue: Morgue) -> None:
    a = await morgue.dies(build(table="x"), age=3600)
    b = await morgue.dies(build(table="y"), kind="builtins.KeyError")
    c = await morgue.dies(send(to="z"), message="no 17")
    d = await morgue.dies(send(to="z"), message="no 18")
    assert await morgue.ids(queue="mails") == [d, c]
    assert await morgue.ids(function=build.name) == [b, a]
    assert await morgue.ids(kind="KeyError") == await morgue.ids(kind="builtins.KeyError") == [b]
    assert await morgue.ids(tag="sales") == [b, a]
    assert await morgue.ids(since=NOW - timedelta(minutes=1)) == [d, c, b]
    assert await morgue.ids(until=NOW - timedelta(minutes=1)) == [a]
    alike = (await morgue.dead.get(c)).fingerprint
    assert await morgue.ids(fingerprint=alike) == [d, c]
    assert await morgue.ids(fingerprint=alike, queue="reports") == []
    assert await morgue.ids(queue="nobody") == []


async def test_failures_are_grouped_the_most_frequent_first(morgue: Morgue) -> None:
    await morgue.dies(build(table="x"), message="no space", age=60)
    for n in range(3):
        last = await morgue.dies(send(to="x"), message=f"host 10.0.0.{n} refused", age=30 - n)
    first, second = await morgue.dead.groups()
    assert (first.count, first.message, first.example) == (3, "host <n> refused", last)
    assert (first.functions, first.queues) == ([send.name], ["mails"])
    assert first.last_at - first.first_at == timedelta(seconds=2)
    assert (second.count, second.kind) == (1, "builtins.ValueError")


async def test_groups_are_bounded(morgue: Morgue) -> None:
    letter = queue_messages.DeadLetter(
        job_id="x", queue="q", function="f", payload=b"", attempts=1, at=0.0,
        error=JobError(kind="E", message="m"),
    )  # fmt: skip
    for n in range(MOST_GROUPS + 2):
        error = JobError(kind=f"E{n}", message="m")
        body = msgspec.json.encode(msgspec.structs.replace(letter, error=error))
        await morgue.bus.append(Outgoing(morgue.subjects.dead("q", f"j{n}"), body))
    groups = await morgue.dead.groups()
    assert len(groups) == MOST_GROUPS + 1
    assert (groups[0].fingerprint, groups[0].count) == (OTHERS, 2)


async def test_what_is_no_letter_is_shown_as_such(morgue: Morgue) -> None:
    await morgue.bus.append(Outgoing(morgue.subjects.dead("reports", "odd"), b"rubbish"))
    [letter] = [letter async for letter in morgue.dead.find()]
    assert (letter.job_id, letter.content.error.kind) == ("odd", "malformed")
    with pytest.raises(JobRefused, match="could not be read"):
        await morgue.dead.retry("odd")
    await morgue.dead.delete("odd")
    assert await morgue.ids() == []
    with pytest.raises(NotFound, match="odd"):
        await morgue.dead.get("odd")


# --- retrying -------------------------------------------------------------------------------------
async def test_pressed_twice_at_once_a_job_goes_again_once(morgue: Morgue) -> None:
    job_id = await morgue.dies(build(table="x"))
    others = [Client(morgue.bus.client(), prefix="p") for _ in range(4)]
    answers = await asyncio.gather(
        *(client.dead.retry(job_id) for client in others),
        *(client.retry(job_id) for client in others),
        return_exceptions=True,
    )
    assert [type(answer) for answer in answers].count(type(None)) == 1
    assert all(isinstance(answer, JobRefused | NotFound | None) for answer in answers)
    assert [call.id for call in await morgue.waiting()] == [job_id]
    with pytest.raises(JobRefused, match="waiting; only dead or cancelled"):
        await morgue.client.retry(job_id)


async def test_arguments_are_changed_and_checked(morgue: Morgue) -> None:
    job_id = await morgue.dies(build(table="x", limit=3))
    for wrong in ({"limit": "many"}, {"other": 1}, {"table": "x" * 3_000}):
        with pytest.raises(JobRefused):
            await morgue.dead.retry(job_id, wrong)
    with pytest.raises(BadArguments, match="limit"):
        await morgue.client.retry(job_id, {"limit": None})
    assert await morgue.waiting() == []
    assert await morgue.ids() == [job_id]

    await morgue.dead.retry(job_id, {"limit": 5}, "smaller steps")
    [call] = await morgue.waiting()
    assert build.decode(call.arguments) == {"table": "x", "limit": 5}
    revived = (await morgue.client.job(job_id)).events[-1][1]
    assert isinstance(revived, JobRevived)
    assert (revived.changed, revived.reason) == (True, "smaller steps")


async def test_all_that_fit_go_again_and_the_others_stay(morgue: Morgue) -> None:
    ids = [await morgue.dies(build(table=str(n))) for n in range(PAGE + 5)]
    other = await morgue.dies(send(to="x"))
    told = await outcomes(morgue.dead.retry_all(LetterFilter(queue="reports")))
    assert told == [Outcome(job_id) for job_id in ids]
    assert sorted(call.id for call in await morgue.waiting()) == sorted(ids)
    assert await morgue.ids() == [other]


async def test_of_many_each_is_told_why_it_does_not_go_again(morgue: Morgue) -> None:
    good, bad = await morgue.dies(build(table="x")), await morgue.dies(send(to="y"))
    first, second = await outcomes(morgue.dead.retry_all(LetterFilter(), {"limit": 7}))
    assert first == Outcome(good)
    assert second.id == bad and "limit" in str(second.error)
    assert await morgue.ids() == [bad]


async def test_a_job_that_dies_again_meanwhile_is_not_retried_for_ever(morgue: Morgue) -> None:
    ids = [await morgue.dies(build(table=str(n))) for n in range(PAGE + 1)]
    seen = []
    async for page in morgue.dead.retry_all(LetterFilter()):
        for outcome in page:
            seen.append(outcome.id)
            await morgue.dies_again(outcome.id)
    assert seen == ids
    assert sorted(await morgue.ids()) == sorted(ids)


async def test_a_letter_that_its_job_outlived_is_removed_and_nothing_runs(morgue: Morgue) -> None:
    """A worker that was stopped between death and letter writes it when the job lives again."""
    job_id = await morgue.dies(build(table="x"))
    late = queue_messages.dead_letter(morgue.subjects, (await morgue.client.job(job_id)).record, {})
    await morgue.dead.retry(job_id)
    await morgue.bus.append(late)
    assert await morgue.ids() == [job_id]
    with pytest.raises(JobRefused, match="not dead any more"):
        await morgue.dead.retry(job_id)
    assert await morgue.ids() == []
    assert len(await morgue.waiting()) == 1


async def test_a_letter_lives_longer_than_events(morgue: Morgue) -> None:
    job_id = await morgue.dies(build(table="x"))
    await morgue.bus.remove(morgue.subjects.events_stream, morgue.subjects.job(job_id))
    await morgue.client.retry(job_id)
    view = await morgue.client.job(job_id)
    assert (view.state, view.record.life) == (State.WAITING, 2)
    assert [call.id for call in await morgue.waiting()] == [job_id]
    with pytest.raises(JobRefused):
        await morgue.client.retry(job_id)


async def test_without_a_broker_nothing_is_lost(morgue: Morgue) -> None:
    job_id = await morgue.dies(build(table="x"))
    away = morgue.bus.client()
    await away.close()
    with pytest.raises(BusUnavailable):
        await Client(away, prefix="p").dead.retry(job_id)
    assert await morgue.ids() == [job_id]


# --- deleting -------------------------------------------------------------------------------------
async def test_deleted_letters_are_gone_and_the_log_says_so(morgue: Morgue) -> None:
    ids = [await morgue.dies(build(table=str(n))) for n in range(3)]
    await morgue.dies(send(to="x"))
    await morgue.dead.delete(ids[0], "not wanted")
    assert len(await outcomes(morgue.dead.delete_all(LetterFilter(tag="sales"), "too old"))) == 2
    assert len(await morgue.ids()) == 1
    assert (await morgue.client.job(ids[0])).state is State.DEAD
    subject = morgue.subjects.events("queue", "*", "DeadLettersDeleted")
    stored = await morgue.bus.history(morgue.subjects.events_stream, subject)
    told = [DEAD_EVENTS.decode(each.body) for each in stored]
    assert [(each.queue, each.count, each.matching, each.reason) for each in told] == [
        ("reports", 1, {"job_id": ids[0]}, "not wanted"),
        ("reports", 2, {"tag": "sales"}, "too old"),
    ]


class LetterComesLate:
    """A bus on which the letter is stored just before the job's new life is."""

    def __init__(self, morgue: Morgue, job_id: str) -> None:
        self._morgue, self._job_id = morgue, job_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._morgue.bus, name)

    async def append_many(self, messages: Any) -> Any:
        if any(JobRevived.__name__ in message.subject for message in messages):
            record = (await self._morgue.client.job(self._job_id)).record
            await self._morgue.bus.append(
                queue_messages.dead_letter(self._morgue.subjects, record, {})
            )
        return await self._morgue.bus.append_many(messages)


async def test_a_letter_that_comes_while_its_job_is_retried_does_not_stay() -> None:
    morgue = Morgue()
    job_id = await morgue.dies(build(table="a"))
    await morgue.bus.remove(morgue.subjects.dead_stream, morgue.subjects.dead("*", "*"))
    client = Client(LetterComesLate(morgue, job_id), prefix="p")  # type: ignore[arg-type]
    await client.retry(job_id)
    assert await morgue.ids() == []
    assert (await morgue.client.job(job_id)).state is State.WAITING


async def test_the_letter_of_a_first_death_is_stored_once() -> None:
    """One over another could come back when both are deleted and the broker is killed."""
    morgue = Morgue()
    job_id = await morgue.dies(build(table="a"))
    log = JobLog(morgue.bus, morgue.subjects)
    record = (await morgue.client.job(job_id)).record
    assert await log.follow_up(record, {}) is None
    assert (await morgue.dead.get(job_id)).sequence == 1
    assert await log.follow_up(msgspec.structs.replace(record, life=2), {}), "of another death"
    assert (await morgue.dead.get(job_id)).sequence == 2
