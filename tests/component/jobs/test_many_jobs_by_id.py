"""Jobs that are requeued or cancelled by id: read together where their events prove whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.bus.protocol import BusError, Expect, Outgoing, Stored
from penstock.config import Settings
from penstock.events.envelope import Event, encode
from penstock.events.job import (
    JobCancelled,
    JobCommitted,
    JobCompleted,
    JobDead,
    JobDispatched,
    JobError,
    JobEvent,
    JobStarted,
    JobTagged,
)
from penstock.jobs import Client
from penstock.jobs.bulk.client import Effect
from penstock.jobs.bulk.named_jobs import NamedJobs
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.reading import proven_jobs
from penstock.jobs.retry import DEFAULT_BACKOFF
from penstock.testing.memory.bus import MemoryBus
from penstock.worker.core.outcome import failed

ERROR = JobError(kind="builtins.ValueError", message="no")
READS = ("last", "next", "count", "history", "last_of")


class CountingBus(MemoryBus):
    """Counts what is read of it; ``interrupt`` comes before the next events are stored."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()
        self.interrupt: Callable[[], Any] | None = None
        for name in READS:
            setattr(self, name, self._counted(name))

    def _counted(self, name: str) -> Callable[..., Any]:
        method = getattr(MemoryBus, name)

        async def counted(*values: Any) -> Any:
            self.reads[name] += 1
            return await method(self, *values)

        return counted

    async def append(self, message: Outgoing) -> int:
        await self._interrupted()
        return await super().append(message)

    async def append_many(self, messages: Sequence[Outgoing]) -> list[int | BusError]:
        await self._interrupted()
        return await super().append_many(messages)

    async def _interrupted(self) -> None:
        interrupt, self.interrupt = self.interrupt, None
        if interrupt is not None:
            await interrupt()


class World:
    """Jobs as clients and workers store them; another job's events lie between any two."""

    def __init__(self) -> None:
        self.bus = CountingBus()
        self.subjects = self.bus.subjects
        self.client = Client.over(self.bus, Settings())
        self.log = JobLog(self.bus, self.subjects)
        self.named = NamedJobs(self.bus, self.subjects, "console/ada/b1", 512_000)

    async def store(self, *events: Event) -> None:
        """As a client does that knows nothing of what was stored before."""
        for event in events:
            await self.bus.append(Outgoing(self.subjects.event(event), encode(event)))

    async def append(self, job_id: str, *events: JobEvent) -> JobRecord:
        """By one compare-and-set, in an atomic batch where they are several."""
        record = await self.log.read(job_id)
        assert record
        await self.store(JobCancelled(job_id="another", reason="it lies between"))
        first, *rest = (self.log.outgoing(event, None, {}) for event in events)
        condition = Expect(record.sequence, self.subjects.job(job_id))
        await self.bus.append_atomic([replace(first, expect=condition), *rest])
        after = await self.log.read(job_id)
        assert after
        return after

    async def attempt(self, job_id: str, attempt: int, tries: int) -> JobRecord:
        await self.append(job_id, self.start(job_id, attempt))
        events = failed(
            job_id=job_id, function="shop.load", queue="reports", attempt=attempt, tries=tries,
            backoff=DEFAULT_BACKOFF, error=ERROR, run_seconds=0.1, now=datetime.now(UTC),
            source="worker/h1",
        )  # fmt: skip
        return await self.append(job_id, *events)

    def start(self, job_id: str, attempt: int = 1) -> JobStarted:
        return JobStarted(job_id=job_id, queue="reports", attempt=attempt, host="h", worker="w")

    async def waiting(self) -> str:
        return await self.client.dispatch_named("shop.load", queue="reports")

    async def dead(self, attempts: int = 1) -> str:
        job_id = await self.waiting()
        for attempt in range(1, attempts + 1):
            record = await self.attempt(job_id, attempt, attempts)
        await self.log.follow_up(record, {})
        return job_id

    async def proven(self, *job_ids: str) -> dict[str, JobRecord]:
        return await proven_jobs.read(self.bus, self.subjects, job_ids)

    async def requeue(self, *job_ids: str) -> list[tuple[Effect, str]]:
        outcomes = await self.named.requeue(job_ids, lambda _: "", "fixed")
        assert [one.id for one in outcomes] == list(job_ids)
        return [(one.effect, one.text) for one in outcomes]

    async def cancel(self, *job_ids: str) -> list[tuple[Effect, str]]:
        outcomes = await self.named.cancel(job_ids, lambda _: "", "old")
        return [(one.effect, one.text) for one in outcomes]

    async def state(self, job_id: str) -> State:
        return (await self.client.job(job_id)).state

    async def letters(self) -> int:
        return (await self.bus.extent(self.subjects.dead_stream)).messages


DONE = (Effect.DONE, "")


@pytest.fixture
async def world() -> World:
    return World()


# --- reading them together ------------------------------------------------------------------------
def essence(record: JobRecord | None) -> tuple[Any, ...]:
    """What an act on a job is decided by and made of."""
    assert record
    return (
        record.state, record.sequence, record.life_from, record.queue, record.function,
        record.payload, record.tags, record.commits, record.finished_at,
    )  # fmt: skip


async def test_jobs_with_any_number_of_attempts_are_as_their_whole_history_has_them(
    world: World,
) -> None:
    jobs = [await world.waiting(), *[await world.dead(n) for n in (1, 2, 3)]]
    proven = await world.proven(*jobs)
    assert [essence(proven[job_id]) for job_id in jobs] == [
        essence(await world.log.read(job_id)) for job_id in jobs
    ]


@pytest.mark.parametrize("attempts", [1, 2])
async def test_a_job_that_died_in_a_later_life_is_requeued(world: World, attempts: int) -> None:
    job_id = await world.dead(attempts)
    await world.client.dead.retry(job_id)
    await world.log.follow_up(await world.attempt(job_id, 1, 1), {})
    assert await world.requeue(job_id) == [DONE]
    assert (await world.client.job(job_id)).record.life == 3
    assert await world.letters() == 0


DECIDING = {
    "completed": lambda job_id: JobCompleted(
        job_id=job_id, queue="reports", attempt=2, run_seconds=0.1
    ),
    "cancelled": lambda job_id: JobCancelled(job_id=job_id, reason="by another"),
}


@pytest.mark.parametrize("state", ["completed", "cancelled"])
async def test_a_forged_death_behind_the_end_of_several_attempts_is_none(
    world: World, state: str
) -> None:
    job_id = await world.waiting()
    await world.attempt(job_id, 1, 2)
    await world.append(job_id, world.start(job_id, 2))
    await world.append(job_id, DECIDING[state](job_id))
    await world.store(JobDead(job_id=job_id, queue="reports", error=ERROR))
    assert await world.proven(job_id) == {}
    assert await world.state(job_id) == state


@pytest.mark.parametrize("attempts", [1, 3])
async def test_a_hundred_dead_jobs_are_requeued_with_a_few_reads(
    world: World, attempts: int
) -> None:
    jobs = [await world.dead(attempts) for _ in range(100)]
    world.bus.reads.clear()
    assert await world.requeue(*jobs) == [DONE] * 100
    assert world.bus.reads.keys() == {"last_of"}
    assert world.bus.reads["last_of"] <= 10
    assert await world.letters() == 0
    assert {await world.state(job_id) for job_id in jobs} == {State.WAITING}


async def test_an_event_that_was_stored_without_a_condition_proves_nothing(world: World) -> None:
    job_id = await world.dead()
    forged = JobDispatched(job_id=job_id, queue="reports", function="evil", payload=b"evil")
    await world.store(JobCancelled(job_id="another", reason="it lies between"), forged)
    assert await world.proven(job_id) == {}
    assert await world.requeue(job_id) == [DONE]
    assert (await world.client.job(job_id)).function == "shop.load"


async def test_an_unusual_event_between_usual_ones_is_not_passed_over(world: World) -> None:
    job_id = await world.waiting()
    await world.append(job_id, world.start(job_id))
    await world.append(job_id, JobCommitted(job_id=job_id, output="lines", location="s3://a"))
    record = await world.append(job_id, JobDead(job_id=job_id, queue="reports", error=ERROR))
    assert await world.proven(job_id) == {}
    assert await world.requeue(job_id) == [DONE]
    assert (await world.client.job(job_id)).record.commits == record.commits != {}


async def test_a_job_without_events_is_left(world: World) -> None:
    [(effect, text)] = await world.requeue("none")
    assert (effect, text) == (Effect.LEFT, "its events have left the log")


# --- what is stored meanwhile ---------------------------------------------------------------------
async def test_a_job_that_was_tagged_after_its_death_is_requeued_with_its_tags(
    world: World,
) -> None:
    job_id = await world.dead()
    await world.append(job_id, JobTagged(job_id=job_id, added=("late",)))
    assert await world.requeue(job_id, await world.dead()) == [DONE, DONE]
    assert (await world.client.job(job_id)).record.tags == ("late",)


async def test_of_two_that_requeue_a_job_one_does_and_the_other_says_why_not(
    world: World,
) -> None:
    job_id = await world.dead()
    world.bus.interrupt = lambda: world.client.dead.retry(job_id)
    assert await world.requeue(job_id) == [
        (Effect.LEFT, "it is waiting; only dead or cancelled jobs are retried")
    ]
    assert (await world.client.job(job_id)).record.life == 2


@pytest.mark.parametrize("is_stale", [False, True])
async def test_a_letter_that_a_replica_does_not_have_yet_is_removed(
    world: World, monkeypatch: pytest.MonkeyPatch, is_stale: bool
) -> None:
    job_id = await world.dead()
    last_of, dead = world.bus.last_of, world.subjects.dead_stream
    earlier = await last_of(dead, [world.subjects.dead("reports", job_id)]) if is_stale else {}
    if is_stale:
        await world.client.dead.retry(job_id)
        await world.log.follow_up(await world.attempt(job_id, 1, 1), {})

    async def lagging(stream: str, subjects: Sequence[str], before: int = 0) -> dict[str, Stored]:
        return earlier if stream == dead else await last_of(stream, subjects, before)

    monkeypatch.setattr(world.bus, "last_of", lagging)
    assert await world.requeue(job_id) == [DONE]
    assert await world.letters() == 0


async def test_jobs_are_cancelled_once_whatever_was_stored_meanwhile(world: World) -> None:
    starting, waiting, over = [await world.waiting() for _ in range(3)]
    await world.append(over, world.start(over))
    await world.append(over, JobCancelled(job_id=over, reason="by another"))

    async def start() -> None:
        await world.store(world.start(starting))

    notices: list[str] = []
    pattern = world.subjects.cancel_notice("*")
    await world.bus.listen(pattern, lambda subject, _: notices.append(subject))
    world.bus.interrupt = start
    over_already = (Effect.LEFT, "it is cancelled already")
    assert await world.cancel(starting, waiting, over) == [DONE, DONE, over_already]
    assert notices == [world.subjects.cancel_notice(starting)]
    assert {await world.state(job_id) for job_id in (waiting, starting)} == {State.CANCELLED}
