"""Tags after the dispatch: bounded, found by filters, kept over requeues, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from penstock.bus.protocol import Outgoing
from penstock.config import Settings
from penstock.events.envelope import encode
from penstock.events.job import JobCompleted, JobDead, JobError, JobStarted
from penstock.jobs import Client, JobRefused, NotFound, job, registry
from penstock.jobs.bulk.named_jobs import NamedJobs
from penstock.jobs.job_filter import JobFilter
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import State
from penstock.testing.memory.bus import MemoryBus

ERROR = JobError(kind="builtins.ValueError", message="no")


@job(queue="reports", tags=["sales"])
def rebuild() -> None: ...


@pytest.fixture(scope="module", autouse=True)
def known() -> Iterator[None]:
    registry.REGISTRY[rebuild.name] = rebuild
    yield
    del registry.REGISTRY[rebuild.name]


class Installation:
    def __init__(self) -> None:
        self.bus = MemoryBus()
        self.subjects = self.bus.subjects
        self.client = Client.over(self.bus, Settings())
        self.log = JobLog(self.bus, self.subjects)

    async def dies(self) -> str:
        job_id = await self.client.dispatch(rebuild())
        about = {"job_id": job_id, "queue": "reports", "attempt": 1}
        for event in (
            JobStarted(**about, host="h", worker="w"),
            JobDead(**about, function=rebuild.name, error=ERROR),
        ):
            await self.bus.append(Outgoing(self.subjects.event(event), encode(event)))
        return job_id


@pytest.fixture
async def installation() -> Installation:
    return Installation()


async def test_a_job_is_tagged_and_untagged_once_however_often_it_is_asked_for(
    installation: Installation,
) -> None:
    client = installation.client
    job_id = await client.dispatch(rebuild())
    for _ in range(2):
        assert await client.tags.add(job_id, "seen", "a/b") == ("sales", "seen", "a/b")
    for _ in range(2):
        assert await client.tags.remove(job_id, "sales", "never") == ("seen", "a/b")
    names = [event.name for _, event in (await client.job(job_id)).events]
    assert names == ["JobDispatched", "JobTagged", "JobTagged"]
    assert [one.id for one in await client.jobs.list(tag="a/b")] == [job_id]
    assert [one.id for one in await client.jobs.list(tag="sales")] == []


async def test_of_changes_at_the_same_time_none_is_lost(installation: Installation) -> None:
    job_id = await installation.client.dispatch(rebuild())
    tags = [f"t{number}" for number in range(8)]
    await asyncio.gather(*(installation.client.tags.add(job_id, tag) for tag in tags))
    record = (await installation.client.job(job_id)).record
    assert (set(record.tags), record.state) == ({"sales", *tags}, State.WAITING)


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        ((), "expected 1 to 20 tags"),
        (("",), "printable characters"),
        ((" seen",), "no space at its ends"),
        (("x" * 101,), "1 to 100"),
        (("a\nb",), "printable"),
        (("schedule:nightly",), "names the schedule"),
        (tuple(f"t{n}" for n in range(21)), "expected 1 to 20 tags"),
        (tuple(f"t{n}" for n in range(20)), "would have 21"),
    ],
)
async def test_what_cannot_be_a_tag_is_refused(
    installation: Installation, tags: tuple[str, ...], said: str
) -> None:
    job_id = await installation.client.dispatch(rebuild())
    with pytest.raises(JobRefused, match=said):
        await installation.client.tags.add(job_id, *tags)
    assert (await installation.client.job(job_id)).record.tags == ("sales",)


async def test_a_job_that_is_not_there_is_not_tagged(installation: Installation) -> None:
    with pytest.raises(NotFound):
        await installation.client.tags.add("nothing", "seen")


async def test_a_dead_job_is_tagged_and_keeps_its_tags_when_it_runs_again(
    installation: Installation,
) -> None:
    job_id, client = await installation.dies(), installation.client
    await client.tags.add(job_id, "seen")
    await client.retry(job_id)
    record = (await client.job(job_id)).record
    assert (record.tags, record.state, record.life) == (("sales", "seen"), State.WAITING, 2)
    assert await client.tags.remove(job_id, "seen") == ("sales",)


async def test_a_dead_letter_is_requeued_after_its_job_was_tagged(
    installation: Installation,
) -> None:
    job_id, client = await installation.dies(), installation.client
    record = await installation.log.read(job_id)
    assert record is not None
    await installation.log.follow_up(record, {})
    await client.tags.add(job_id, "seen")
    await client.dead.retry(job_id)
    assert (await client.job(job_id)).record.tags == ("sales", "seen")


async def test_operations_on_many_see_tags_of_later(installation: Installation) -> None:
    client = installation.client
    tagged, other = [await client.dispatch(rebuild()) for _ in range(2)]
    await client.tags.add(tagged, "stop")
    assert (await client.bulk.count(JobFilter(tag="stop"))).jobs == 1
    async for _ in client.bulk.cancel(JobFilter(tag="stop")):
        pass
    assert (await client.job(tagged)).state is State.CANCELLED
    assert (await client.job(other)).state is State.WAITING


async def test_named_jobs_are_tagged_as_their_check_allows(installation: Installation) -> None:
    one, two = [await installation.client.dispatch(rebuild()) for _ in range(2)]
    named = NamedJobs(installation.bus, installation.subjects, "test", 10_000)
    outcomes = await named.tag(
        [one, two, "gone"], lambda record: "not this" * (record.id == two), ("seen",), ()
    )
    assert [(one.effect.value, one.text) for one in outcomes] == [
        ("done", ""), ("left", "not this"), ("left", "its events have left the log"),
    ]  # fmt: skip


async def test_a_tag_alone_is_no_proof_that_a_job_lives(installation: Installation) -> None:
    """Its first events, and its end, have left the log: a message of it is left over."""
    job_id = await installation.client.dispatch(rebuild())
    end = JobCompleted(job_id=job_id, queue="reports", attempt=1, run_seconds=1.0)
    start = JobStarted(job_id=job_id, queue="reports", attempt=1, host="h", worker="w")
    for event in (start, end):
        await installation.bus.append(Outgoing(installation.subjects.event(event), encode(event)))
    await installation.client.tags.add(job_id, "seen")
    assert not await installation.log.is_over(job_id, made_from=1)
    await installation.bus.remove(
        installation.subjects.events_stream, installation.subjects.job(job_id), 4
    )
    assert await installation.log.is_over(job_id, made_from=1)
    assert await installation.log.read(job_id) is None
