"""What is read of a job or batch when its subjects hold messages that are no events of it."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.jobs.telling import event

from penstock.bus.protocol import Outgoing, Stored
from penstock.events.batch import BATCH_EVENTS, BatchClosed, BatchCompleted, BatchCreated, Counts
from penstock.events.envelope import Event, UnknownEvent, encode, new_id
from penstock.events.job import (
    JOB_EVENTS,
    JobCancelled,
    JobCompleted,
    JobDead,
    JobDispatched,
    JobEvent,
    JobFailed,
    JobProgressed,
    JobReleased,
    JobRevived,
    JobStarted,
)
from penstock.events.subjects import Subjects
from penstock.jobs.batches import batch_record
from penstock.jobs.batches.batch_record import BatchState
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.job_log import JobLog
from penstock.testing.memory.bus import MemoryBus

NOW = datetime(2026, 11, 20, tzinfo=UTC)
DONE = JobCompleted(job_id="a", queue="q", attempt=1, run_seconds=1.0)


def stored(name: str, body: bytes, key: str = "a", noun: str = "job") -> Stored:
    return Stored(
        subject=f"penstock.events.{noun}.{key}.{name}", sequence=7, body=body, headers={}, at=NOW
    )


def test_an_event_under_its_own_subject_is_read() -> None:
    assert read_event(stored("JobCompleted", encode(DONE)), JOB_EVENTS) == DONE


def test_an_event_of_a_later_version_is_no_rubbish() -> None:
    unknown = read_event(stored("JobBlessed", b'{"type":"JobBlessed","x":1}'), JOB_EVENTS)
    assert unknown == UnknownEvent(type="JobBlessed", raw=b'{"type":"JobBlessed","x":1}')


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (stored("JobProgressed", b""), "expected a JSON object"),
        (stored("JobProgressed", b'{"type":"JobProgressed"}'), "does not fit its type"),
        (stored("JobProgressed", encode(DONE)), "JobCompleted of job a, stored as JobProgressed"),
        (stored("JobCompleted", encode(DONE), key="b"), "stored as JobCompleted of job b"),
        (stored("JobCompleted", encode(DONE), noun="batch"), "of batch a"),
    ],
    ids=["empty", "no fields", "another name", "another job", "another noun"],
)
def test_what_is_no_event_of_its_subject_says_why(message: Stored, why: str) -> None:
    unknown = read_event(message, JOB_EVENTS)
    assert isinstance(unknown, UnknownEvent)
    assert why in unknown.unreadable


@given(st.binary(max_size=200), st.sampled_from(["JobProgressed", "JobCompleted", "x"]))
def test_any_bytes_are_read_as_something(body: bytes, name: str) -> None:
    read = read_event(stored(name, body), JOB_EVENTS)
    assert isinstance(read, (JobCompleted, JobProgressed, UnknownEvent))


def test_a_batch_goes_on_behind_what_may_not_follow() -> None:
    completed = BatchCompleted(batch_id="b", counts=Counts(completed=9))
    rubbish = UnknownEvent(type="BatchFailed", raw=b"", unreadable="empty")
    events: list[tuple[int, Event | UnknownEvent]] = [
        (1, BatchCreated(batch_id="b")),
        (2, completed),
        (3, rubbish),
        (4, BatchClosed(batch_id="b")),
        (5, BatchCreated(batch_id="b", title="forged")),
    ]
    record = batch_record.fold(events)
    assert record is not None
    assert (record.state, record.sequence, record.title) == (BatchState.RUNNING, 5, "")
    assert isinstance(
        read_event(stored("BatchFailed", b"", noun="batch"), BATCH_EVENTS), UnknownEvent
    )
    empty = stored("BatchFailed", b"", noun="batch")
    assert isinstance(read_event(empty, BATCH_EVENTS), UnknownEvent)


# --- what is logged -------------------------------------------------------------------------------
async def _warnings(kinds: list[type[JobEvent]], caplog: pytest.LogCaptureFixture) -> list[str]:
    """Of one job that has these events in the log, in this order."""
    bus, subjects, key = MemoryBus(), Subjects(), new_id()
    for kind in kinds:
        made = msgspec.structs.replace(event(kind), job_id=key)
        await bus.append(Outgoing(subjects.event(made), encode(made)))
    caplog.clear()
    with caplog.at_level("WARNING", logger="penstock.jobs"):
        await JobLog(bus, subjects).read(key)
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    "kinds",
    [
        [JobStarted],
        [JobReleased, JobStarted, JobCompleted],
        [JobStarted, JobFailed, JobDead],
        [JobProgressed, JobCancelled, JobRevived, JobStarted],
    ],
)
async def test_the_tail_of_a_history_whose_beginning_left_the_log_is_no_reason_to_warn(
    kinds: list[type[JobEvent]], caplog: pytest.LogCaptureFixture
) -> None:
    assert await _warnings(kinds, caplog) == []


@pytest.mark.parametrize(
    ("kinds", "why"),
    [
        ([JobStarted, JobDispatched], "JobStarted may not follow state nothing"),
        ([JobDispatched, JobCompleted], "JobCompleted may not follow state waiting"),
        ([JobStarted, JobCompleted, JobStarted], "JobStarted may not follow state completed"),
    ],
)
async def test_an_order_that_cannot_have_been_is_logged(
    kinds: list[type[JobEvent]], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    [line] = await _warnings(kinds, caplog)
    assert line.endswith(why)
