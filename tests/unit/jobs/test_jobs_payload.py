"""What travels in the queue, when it goes again, and what follows from a job's state."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.jobs.telling import BROKEN, JOB, NOW, call, event, told

from penstock.events.job import (
    JobCancelled,
    JobCompleted,
    JobDead,
    JobDispatched,
    JobFailed,
    JobReleased,
    JobRetrying,
    JobStarted,
)
from penstock.events.subjects import Subjects
from penstock.jobs import Backoff, job
from penstock.jobs.dispatch.job_factory import JobFactory, Terms
from penstock.jobs.payloads import payload
from penstock.jobs.queues import queue_messages
from penstock.jobs.queues.queue_messages import DeadLetter
from penstock.jobs.schedules import schedule
from penstock.jobs.schedules.schedule import Schedule

SUBJECTS = Subjects("p")


def test_a_payload_comes_back_as_it_went() -> None:
    made = call(tries=3, timeout_seconds=1.5, backoff=Backoff(first_seconds=9), tags=("a", "b"))
    assert payload.decode(payload.encode(made)) == made


def test_a_payload_names_its_schema_and_leaves_out_what_is_usual() -> None:
    raw = msgspec.msgpack.decode(payload.encode(call()))
    assert raw["type"] == "penstock.job.1"
    assert set(raw) == {"type", "id", "function", "queue", "arguments", "dispatched_at"}


@job(name="payload_tests.rebuild", queue="reports")
def rebuild(table: str) -> None: ...


def test_a_dispatched_call_leaves_out_what_it_does_not_limit() -> None:
    """msgspec leaves out a default that is identical, and writes out one that is only equal."""
    dispatched = JobFactory("client", 10_000).event(rebuild(table="orders"), Terms())
    raw = msgspec.msgpack.decode(dispatched.payload)
    assert set(raw) == {"type", "id", "function", "queue", "arguments", "dispatched_at"}
    assert dispatched.correlation_id is None


def test_a_tick_of_a_schedule_leaves_out_what_it_does_not_limit() -> None:
    template = JobFactory("client", 10_000).event(rebuild(table="orders"), Terms())
    nightly = Schedule(
        name="nightly",
        cron="0 3 * * *",
        queue="reports",
        function=template.function,
        payload=template.payload,
        generation="g",
        made_at=NOW,
        done_until=NOW,
    )
    tick = schedule.dispatched(nightly, NOW, "orchestrator", NOW)
    raw = msgspec.msgpack.decode(tick.payload)
    assert "expires_at" not in raw


@pytest.mark.parametrize(
    "change",
    [{"type": "penstock.job.2"}, {"type": 1}, {"id": 7}, {"backoff": {"max_seconds": 1e300}}],
)
def test_a_payload_of_another_schema_is_refused(change: dict[str, object]) -> None:
    raw = msgspec.msgpack.decode(payload.encode(call())) | change
    with pytest.raises(msgspec.ValidationError):
        payload.decode(msgspec.msgpack.encode(raw))


@given(st.integers(1, 2000), st.floats(0, 1, exclude_max=True))
def test_a_delay_is_bounded_and_jitter_only_shortens_it(attempt: int, draw: float) -> None:
    backoff = Backoff(first_seconds=0.5, factor=3, max_seconds=60, jitter=0.5)
    full = min(0.5 * 3 ** min(attempt - 1, 64), 60)
    assert full / 2 <= backoff.delay_seconds(attempt, draw) <= full


def test_delays_double_until_the_longest() -> None:
    plain = Backoff(jitter=0)
    assert [plain.delay_seconds(n) for n in (1, 2, 3, 4)] == [1, 2, 4, 8]
    assert plain.delay_seconds(50) == plain.delay_seconds(10_000) == 600
    drawn = {Backoff(jitter=1).delay_seconds(4) for _ in range(20)}
    assert len(drawn) > 1
    assert max(drawn) <= 8


@pytest.mark.parametrize(
    "wrong",
    [
        {"first_seconds": -1}, {"first_seconds": math.nan}, {"max_seconds": 1e300},
        {"factor": 0.5}, {"factor": 1e9}, {"jitter": 1.1}, {"max_seconds": 0},
    ],
)  # fmt: skip
def test_a_backoff_that_no_clock_can_keep_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="out of bounds"):
        Backoff(**wrong)


WAITING = told(JobDispatched)
RETRYING = told(JobDispatched, JobStarted, JobFailed, JobRetrying)
SOON = timedelta(seconds=31)


def test_a_waiting_job_belongs_into_its_queue() -> None:
    message = queue_messages.follow_up(SUBJECTS, WAITING, NOW, {"traceparent": "00-1"})
    assert message is not None
    assert (message.subject, message.body) == ("p.jobs.reports", b"call")
    assert message.headers == {
        queue_messages.JOB: JOB,
        queue_messages.SEQUENCE: "1",
        "traceparent": "00-1",
    }


def test_a_released_job_names_its_last_event() -> None:
    message = queue_messages.follow_up(
        SUBJECTS, told(JobDispatched, JobStarted, JobReleased), NOW, {}
    )
    assert message is not None
    assert message.headers == {queue_messages.JOB: JOB, queue_messages.SEQUENCE: "3"}


def test_a_retry_is_a_schedule_that_the_broker_keeps() -> None:
    message = queue_messages.follow_up(SUBJECTS, RETRYING, NOW, {})
    assert message is not None
    assert message.subject == f"p.schedules.reports.{JOB}"
    assert message.headers == {
        queue_messages.JOB: JOB,
        queue_messages.SEQUENCE: "4",
        queue_messages.ATTEMPT: "2",
        "Nats-Schedule": "@at 2026-11-20T12:00:30Z",
        "Nats-Schedule-Target": "p.jobs.reports",
    }


def test_a_schedule_is_told_in_utc() -> None:
    tokyo = timezone(timedelta(hours=9))
    delayed = told(event(JobDispatched, due_at=datetime(2026, 11, 21, 9, tzinfo=tokyo)))
    message = queue_messages.follow_up(SUBJECTS, delayed, NOW, {})
    assert message is not None
    assert message.headers["Nats-Schedule"] == "@at 2026-11-21T00:00:00Z"


def test_what_is_due_goes_straight_into_the_queue() -> None:
    message = queue_messages.follow_up(SUBJECTS, RETRYING, NOW + SOON, {})
    assert message is not None
    assert message.subject == "p.jobs.reports"
    assert message.headers[queue_messages.ATTEMPT] == "2"


def test_a_dead_job_has_a_letter_with_all_that_is_needed() -> None:
    record = told(event(JobDispatched, tags=("a",)), JobStarted, JobFailed, JobDead)
    message = queue_messages.follow_up(SUBJECTS, record, NOW, {"traceparent": "00-1"})
    assert message is not None
    assert message.subject == f"p.dead.reports.{JOB}"
    letter = msgspec.json.decode(message.body, type=DeadLetter)
    assert letter == DeadLetter(
        job_id=JOB, queue="reports", function="f", payload=b"call", error=BROKEN, attempts=1,
        at=NOW.replace(tzinfo=UTC).timestamp(), tags=("a",), trace="00-1",
    )  # fmt: skip


@pytest.mark.parametrize(
    "record",
    [
        told(JobDispatched, JobStarted),
        told(JobDispatched, JobStarted, JobCompleted),
        told(JobDispatched, JobCancelled),
    ],
    ids=["running", "completed", "cancelled"],
)
def test_nothing_follows(record: object) -> None:
    assert queue_messages.follow_up(SUBJECTS, record, NOW + SOON, {}) is None  # type: ignore[arg-type]
