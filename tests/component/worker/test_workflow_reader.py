"""What a worker reads of a workflow before it goes on, and what it knows without."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from penstock.bus.protocol import Delivery, Stored
from penstock.events.job import JobCompleted, JobDead, JobDispatched, JobError, JobEvent, JobStarted
from penstock.events.workflow import WorkflowAdvanced
from penstock.events.workflow_memo import (
    ScheduledStep,
    WorkflowMemo,
)
from penstock.jobs import derived_ids, workflow
from penstock.jobs.job_log import JobLog
from penstock.jobs.job_type import encode_result
from penstock.jobs.payloads.payload import Payload
from penstock.jobs.queues import queue_messages
from penstock.jobs.workflows.coded import memo
from penstock.testing.memory.bus import MemoryBus
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.running.recent_workflows import RecentWorkflows
from penstock.worker.running.workflow_reader import WorkflowReader

ID = "flow-1"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Counted(MemoryBus):
    """Attributes: looks: subjects looked up together, so far; pages: starts of histories read."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[str] = []
        self.pages: list[int] = []

    async def last_of(self, stream: str, subjects: Sequence[str]) -> dict[str, Stored]:
        self.looks += subjects
        return await super().last_of(stream, subjects)

    async def history(
        self, stream: str, subject: str, limit: int = 1000, start: int = 1
    ) -> list[Stored]:
        self.pages.append(start)
        return await super().history(stream, subject, limit, start)


@workflow(queue="q")
async def flow(ctx: Any) -> None: ...


class Site:
    """A log with one workflow, and a worker's reader of it."""

    def __init__(self) -> None:
        self.bus = Counted()
        self.log = JobLog(self.bus, self.bus.subjects, "test")
        self.recent = RecentWorkflows()
        self.reader = WorkflowReader(self.bus, self.log, self.recent)
        self.memos = [memo.EMPTY]
        self.sequences = [0]

    async def store(self, event: JobEvent) -> int:
        return await self.bus.append(self.log.outgoing(event, None))

    async def advances(self, count: int) -> None:
        """Each schedules a job, and goes on once that completed with its number as the result."""
        for number in range(1, count + 1):
            step = ScheduledStep(n=number, key=f"s{number}")
            event = WorkflowAdvanced(
                job_id=ID, source="", queue="q", number=number, now=NOW, scheduled=(step,)
            )
            self.sequences.append(await self.store(event))
            self.memos.append(memo.advanced(self.memos[-1], event))
            await self.store(
                JobCompleted(
                    job_id=derived_ids.step_id(ID, number),
                    source="",
                    queue="q",
                    attempt=1,
                    run_seconds=0.0,
                    result=encode_result(number),
                )
            )

    def claimed(
        self, advance: int, sequence: int | None = None, ended: str = "", **fields: Any
    ) -> ClaimedJob:
        """The workflow as started by the wake-up that follows an advance."""
        made_from = self.sequences[advance] if sequence is None else sequence
        headers = {
            **queue_messages.headers(ID, made_from, 1, {}),
            **queue_messages.recorded_header(advance, 0),
            queue_messages.ENDED: ended,
        }
        return ClaimedJob(
            delivery=Delivery(
                subject="",
                body=b"\x80",
                headers=headers,
                ack_subject="",
                sequence=1,
                deliveries=1,
                stored_at=0.0,
                pending=0,
            ),
            payload=Payload(
                id=ID, function="flow", queue="q", arguments=msgspec.Raw(b"\x80"), dispatched_at=0.0
            ),
            kind=flow,
            arguments={},
            attempt=1,
            token=made_from + 1,
            sequence=made_from + 1,
            pickup_seconds=0.0,
            timeout_seconds=0.0,
            tries=1,
            started_at=0.0,
            **fields,
        )

    async def memo(self, job: ClaimedJob) -> WorkflowMemo | None:
        history = (await self.reader.read_ahead([job])).get(ID)
        return history.record.workflow if history else None


@pytest.fixture
def site() -> Site:
    return Site()


async def test_what_was_suspended_here_is_not_read_again(site: Site) -> None:
    await site.advances(3)
    site.recent.keep(ID, site.memos[3], site.sequences[3])
    assert await site.memo(site.claimed(3)) == site.memos[3]
    assert not site.bus.pages
    assert not any("WorkflowAdvanced" in subject for subject in site.bus.looks)


async def test_of_one_that_went_on_elsewhere_the_rest_is_read(site: Site) -> None:
    await site.advances(4)
    site.recent.keep(ID, site.memos[2], site.sequences[2])
    assert await site.memo(site.claimed(4)) == site.memos[4]
    assert site.bus.pages == [site.sequences[2] + 1]


async def test_of_an_unknown_one_all_advances_are_read(site: Site) -> None:
    await site.advances(4)
    assert await site.memo(site.claimed(4)) == site.memos[4]


async def test_the_results_of_its_open_steps_are_read_with_it(site: Site) -> None:
    await site.advances(2)
    history = (await site.reader.read_ahead([site.claimed(2)]))[ID]
    assert [(end.key, end.value) for end in history.ends] == [
        ("s1", encode_result(1)),
        ("s2", encode_result(2)),
    ]


@pytest.mark.parametrize("ended", ["1 2", "2", "7", "x 2 -1 99999999999 ²", " ".join("123" * 50)])
async def test_steps_that_the_message_names_are_read_ahead(site: Site, ended: str) -> None:
    await site.advances(2)
    history = (await site.reader.read_ahead([site.claimed(2, ended=ended)]))[ID]
    assert [end.key for end in history.ends] == ["s1", "s2"]
    [completed] = {look for look in site.bus.looks if look.endswith("flow-1_step_2.JobCompleted")}
    assert site.bus.looks.count(completed) == 1
    assert len(site.bus.looks) < 40


@pytest.mark.parametrize("advance", [1, 3])
async def test_a_message_of_another_advance_than_the_last_is_not_enough(
    site: Site, advance: int
) -> None:
    await site.advances(2)
    site.sequences.append(99)
    assert await site.memo(site.claimed(advance)) is None


async def test_one_that_began_at_another_event_is_read_as_a_whole(site: Site) -> None:
    await site.store(JobDispatched(job_id=ID, source="", queue="q", function="f", payload=b"\x80"))
    await site.advances(2)
    site.recent.keep(ID, site.memos[2], site.sequences[2])
    started = JobStarted(job_id=ID, source="", queue="q", attempt=1, host="h", worker="w")
    token = await site.store(started)
    job = site.claimed(2, settled=True)
    job.token = job.sequence = token
    assert await site.memo(job) is None


async def test_a_step_that_lives_is_no_end_and_one_that_is_dead_is(site: Site) -> None:
    steps = tuple(ScheduledStep(n=n, key=f"s{n}") for n in (1, 2))
    event = WorkflowAdvanced(job_id=ID, source="", queue="q", number=1, now=NOW, scheduled=steps)
    site.sequences.append(await site.store(event))
    for n in (1, 2):
        job_id = derived_ids.step_id(ID, n)
        dispatched = JobDispatched(
            job_id=job_id, source="", queue="q", function="f", payload=b"\x80"
        )
        await site.store(dispatched)
    started = JobStarted(job_id=job_id, source="", queue="q", attempt=1, host="h", worker="w")
    await site.store(started)
    error = JobError(kind="ValueError", message="no")
    await site.store(JobDead(job_id=job_id, source="", queue="q", error=error))
    history = (await site.reader.read_ahead([site.claimed(1)]))[ID]
    [end] = history.ends
    assert (end.key, end.outcome, end.error) == ("s2", "failed", error)


def test_recent_workflows_are_bounded_by_their_size() -> None:
    recent = RecentWorkflows(max_bytes=10_000)
    step = ScheduledStep(n=0, key="s", payload=b"x" * 3_000)
    event = WorkflowAdvanced(job_id=ID, source="", queue="q", number=1, now=NOW, scheduled=(step,))
    after = memo.advanced(memo.EMPTY, event)
    for name in "abcd":
        recent.keep(name, after, 1)
        recent.keep(name, after, 1)  # counts once
    kept = [name for name in "abcd" if recent.get(name)]
    assert kept == ["c", "d"]
