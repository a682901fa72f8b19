"""What a worker reads of a workflow before it goes on, and what it knows without."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from penstock.bus.protocol import Delivery, Stored
from penstock.events.job import JobCompleted, JobDead, JobDispatched, JobError, JobEvent, JobStarted
from penstock.events.workflow import StepRecorded, WorkflowAdvanced
from penstock.events.workflow_memo import (
    InlineResult,
    ScheduledStep,
    WorkflowMemo,
)
from penstock.jobs import derived_ids, workflow
from penstock.jobs.job_log import JobLog
from penstock.jobs.job_type import encode_result
from penstock.jobs.lifecycle import JobRecord
from penstock.jobs.payloads.payload import Payload
from penstock.jobs.queues import queue_messages
from penstock.jobs.workflows.coded import memo
from penstock.testing.memory.bus import MemoryBus
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.workflows.recent_workflows import RecentWorkflows
from penstock.worker.workflows.workflow_reader import WorkflowReader

ID = "flow-1"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Counted(MemoryBus):
    """Attributes: looks: subjects looked up together, so far; pages: starts of histories read."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[str] = []
        self.pages: list[int] = []

    async def last_of(
        self, stream: str, subjects: Sequence[str], before: int = 0
    ) -> dict[str, Stored]:
        self.looks += subjects
        return await super().last_of(stream, subjects, before)

    async def history(
        self, stream: str, subject: str, limit: int = 1000, start: int = 1
    ) -> list[Stored]:
        self.pages.append(start)
        return await super().history(stream, subject, limit, start)


@workflow(queue="q")
async def flow(ctx: Any) -> None: ...


def dispatched(job_id: str, kind: str = "") -> JobDispatched:
    return JobDispatched(
        job_id=job_id, source="", queue="q", function="f", payload=b"\x80", kind=kind
    )


def started(job_id: str) -> JobStarted:
    return JobStarted(job_id=job_id, source="", queue="q", attempt=1, host="h", worker="w")


def completed(job_id: str, result: int) -> JobCompleted:
    return JobCompleted(
        job_id=job_id,
        source="",
        queue="q",
        attempt=1,
        run_seconds=0.0,
        result=encode_result(result),
    )


class Site:
    """A log with one workflow, and a worker's reader of it."""

    def __init__(self) -> None:
        self.bus = Counted()
        self.log = JobLog(self.bus, self.bus.subjects, "test")
        self.recent = RecentWorkflows()
        self.reader = WorkflowReader(self.bus, self.log, self.recent)
        self.memos = [memo.EMPTY]
        self.sequences = [0]

    async def store(self, *events: JobEvent) -> int:
        """Appends each as its writer does, by compare-and-set; returns the last sequence."""
        for event in events:
            last = await self.bus.last(self.log.subjects.events_stream, self.tree(event.job_id))
            sequence = await self.bus.append(self.log.outgoing(event, last.sequence if last else 0))
        return sequence

    async def stray(self, event: JobEvent) -> int:
        """Appends one as it comes."""
        return await self.bus.append(self.log.outgoing(event, None))

    def tree(self, job_id: str) -> str:
        return self.log.subjects.job(job_id)

    async def folded(self, job_id: str) -> JobRecord:
        record = await self.log.read(job_id)
        assert record is not None
        return record

    async def advances(self, count: int) -> None:
        """Each schedules a job, and goes on once that completed with its number as the result."""
        if self.sequences == [0]:
            self.sequences[0] = await self.store(dispatched(ID, "workflow"))
        for number in range(1, count + 1):
            step = ScheduledStep(n=number, key=f"s{number}")
            event = WorkflowAdvanced(
                job_id=ID, source="", queue="q", number=number, now=NOW, scheduled=(step,)
            )
            self.sequences.append(await self.store(started(ID), event))
            self.memos.append(memo.advanced(self.memos[-1], event))
            step_id = derived_ids.step_id(ID, number)
            await self.store(dispatched(step_id), started(step_id), completed(step_id, number))

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
    assert set(site.bus.pages) == {site.sequences[2] + 1}


async def test_of_an_unknown_one_all_advances_are_read(site: Site) -> None:
    await site.advances(4)
    assert await site.memo(site.claimed(4)) == site.memos[4]


async def test_of_one_advance_all_is_read_before_the_claim(site: Site) -> None:
    """Of two starts, the broker finds the earlier one at ten times the cost of the last."""
    await site.advances(1)
    job = site.claimed(1, ended="1")
    early = await site.reader.read_early([job.delivery])
    await site.store(started(ID))
    site.bus.looks.clear()
    history = (await site.reader.read_ahead([job], early))[ID]
    assert history.record.workflow == site.memos[1]
    assert [(end.key, end.value) for end in history.ends] == [("s1", encode_result(1))]
    assert not site.bus.looks
    assert not site.bus.pages


async def test_of_what_was_suspended_here_only_what_followed_counts(site: Site) -> None:
    await site.advances(2)
    site.recent.keep(ID, site.memos[1], site.sequences[1])
    job = site.claimed(2)
    early = await site.reader.read_early([job.delivery])
    await site.store(started(ID))
    history = (await site.reader.read_ahead([job], early))[ID]
    assert history.record.workflow == site.memos[2]


async def test_what_was_read_before_the_claim_proves_a_whole_history(site: Site) -> None:
    await site.advances(1)
    step = ScheduledStep(n=1, key="forged")
    forged = WorkflowAdvanced(job_id=ID, source="", queue="q", number=1, now=NOW, scheduled=(step,))
    sequence = await site.stray(forged)
    job = site.claimed(1, sequence=sequence)
    early = await site.reader.read_early([job.delivery])
    await site.store(started(ID))
    assert await site.reader.read_ahead([job], early) == {}


@pytest.mark.parametrize("job_id", [">", "*", "a b", "", "a.b"])
async def test_nothing_is_read_before_the_claim_of_what_is_no_job(site: Site, job_id: str) -> None:
    await site.advances(1)
    delivery = site.claimed(1).delivery
    headers = {**delivery.headers, queue_messages.JOB: job_id}
    await site.reader.read_early([msgspec.structs.replace(delivery, headers=headers)])
    assert not site.bus.looks


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


async def test_a_message_of_an_advance_that_is_not_there_is_not_enough(site: Site) -> None:
    await site.advances(2)
    site.sequences.append(99)
    assert await site.memo(site.claimed(3)) is None


async def test_one_that_began_at_another_event_is_read_as_a_whole(site: Site) -> None:
    await site.advances(2)
    site.recent.keep(ID, site.memos[2], site.sequences[2])
    token = await site.store(started(ID))
    job = site.claimed(2, settled=True)
    job.token = job.sequence = token
    assert await site.memo(job) is None


async def test_a_step_that_lives_is_no_end_and_one_that_is_dead_is(site: Site) -> None:
    steps = tuple(ScheduledStep(n=n, key=f"s{n}") for n in (1, 2))
    event = WorkflowAdvanced(job_id=ID, source="", queue="q", number=1, now=NOW, scheduled=steps)
    await site.store(dispatched(ID, "workflow"), started(ID))
    site.sequences.append(await site.store(event))
    for n in (1, 2):
        job_id = derived_ids.step_id(ID, n)
        await site.store(dispatched(job_id))
    await site.store(started(job_id))
    error = JobError(kind="ValueError", message="no")
    await site.store(JobDead(job_id=job_id, source="", queue="q", error=error))
    history = (await site.reader.read_ahead([site.claimed(1)]))[ID]
    [end] = history.ends
    assert (end.key, end.outcome, end.error) == ("s2", "failed", error)


# --- events that may not follow -------------------------------------------------------------------
async def test_of_a_second_completion_the_first_counts(site: Site) -> None:
    await site.advances(1)
    await site.stray(completed(derived_ids.step_id(ID, 1), 666))
    for ended in ("", "1"):
        history = (await site.reader.read_ahead([site.claimed(1, ended=ended)]))[ID]
        assert [end.value for end in history.ends] == [encode_result(1)]


async def test_a_completion_chained_to_a_start_that_may_not_follow_does_not_count(
    site: Site,
) -> None:
    await site.advances(1)
    step_id = derived_ids.step_id(ID, 1)
    await site.store(started(step_id), completed(step_id, 666))
    history = (await site.reader.read_ahead([site.claimed(1, ended="1")]))[ID]
    assert [end.value for end in history.ends] == [encode_result(1)]


async def test_a_completion_of_a_step_that_was_not_started_is_no_end(site: Site) -> None:
    step = ScheduledStep(n=1, key="s1")
    event = WorkflowAdvanced(job_id=ID, source="", queue="q", number=1, now=NOW, scheduled=(step,))
    await site.store(dispatched(ID, "workflow"), started(ID))
    site.sequences.append(await site.store(event))
    step_id = derived_ids.step_id(ID, 1)
    await site.store(dispatched(step_id), completed(step_id, 666))
    history = (await site.reader.read_ahead([site.claimed(1, ended="1")]))[ID]
    assert not history.ends


async def test_what_is_recorded_while_it_is_suspended_does_not_count(site: Site) -> None:
    await site.advances(1)
    forged = StepRecorded(
        job_id=ID, source="", number=1, now=NOW, inline=InlineResult("rate", "f", b"\x01")
    )
    await site.stray(forged)
    token = await site.store(started(ID))
    event = WorkflowAdvanced(job_id=ID, source="", queue="q", number=2, now=NOW, inline_steps=1)
    site.sequences.append(await site.store(event))
    job = site.claimed(2)
    job.delivery.headers[queue_messages.RECORDED] = "2 1"  # as a forged count would have it
    assert token < job.token
    assert await site.memo(job) is None, "the whole is read instead"
    record = await site.folded(ID)
    assert record.workflow is not None and not record.workflow.inline_steps


async def test_an_advance_that_may_not_follow_another_does_not_count(site: Site) -> None:
    await site.advances(1)
    event = WorkflowAdvanced(job_id=ID, source="", queue="q", number=2, now=NOW)
    for known in (0, 1):
        site.sequences[2:] = [await site.store(event)]
        if known:
            site.recent.keep(ID, site.memos[1], site.sequences[1])
        assert await site.memo(site.claimed(2)) is None


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
