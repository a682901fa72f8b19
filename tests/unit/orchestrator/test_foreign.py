"""Which schedules are of delayed jobs, by their headers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from penstock.events.subjects import Subjects
from penstock.orchestrator.core.foreign_schedule import Header, oddity

NOW = datetime(2026, 11, 20, tzinfo=UTC)
SCHEDULE, QUEUE = "penstock.schedules.mail.j", "penstock.jobs.mail"
DUE = ("Nats-Schedule", "@at 2026-11-21T08:00:00.123456Z")
TARGET = ("Nats-Schedule-Target", QUEUE)
OURS = [DUE, TARGET, ("Penstock-Job", "j"), ("Nats-Rollup", "sub"), ("Nats-Subject", SCHEDULE)]


def why(subject: str, headers: list[Header]) -> str:
    return oddity(subject, headers, NOW, Subjects())


def at(**delay: int) -> Header:
    return ("Nats-Schedule", f"@at {(NOW + timedelta(**delay)).isoformat()}")


def test_a_delayed_job_is_left() -> None:
    assert why(SCHEDULE, OURS) == ""
    assert why(SCHEDULE, [at(days=366), TARGET]) == ""
    assert why(SCHEDULE, [at(days=-400), TARGET]) == ""


def test_a_job_in_its_queue_is_left() -> None:
    fired = [("Nats-Scheduler", SCHEDULE), ("Nats-Schedule-Next", "purge")]
    assert why(QUEUE, []) == why(QUEUE, fired) == ""


@pytest.mark.parametrize(
    ("subject", "headers", "expected"),
    [
        (QUEUE, OURS, "is a schedule"),
        (SCHEDULE, [], "no time"),
        (SCHEDULE, [TARGET], "no time"),
        (SCHEDULE, [("Nats-Schedule", "@every 1s"), TARGET], "not one instant"),
        (SCHEDULE, [("Nats-Schedule", "0 * * * * *"), TARGET], "not one instant"),
        (SCHEDULE, [("Nats-Schedule", "@at soon"), TARGET], "its time is"),
        (SCHEDULE, [("Nats-Schedule", "@at 2026-11-21T08:00:00"), TARGET], "its time is"),
        (SCHEDULE, [at(days=368), TARGET], "367 days"),
        (SCHEDULE, [DUE], "its target"),
        (SCHEDULE, [DUE, ("Nats-Schedule-Target", "penstock.jobs.other")], "its target"),
        (SCHEDULE, [*OURS, ("Nats-Schedule-Source", "penstock.jobs.other")], "Source"),
        (SCHEDULE, [*OURS, ("Nats-Schedule-Rollup", "sub")], "Rollup"),
        (SCHEDULE, [*OURS, ("Nats-Schedule-TTL", "5s")], "TTL"),
        (SCHEDULE, [("Nats-Schedule", "@every 1s"), *OURS], "twice"),
        (SCHEDULE, [*OURS, ("Nats-Schedule-Target", "penstock.jobs.x")], "twice"),
    ],
)
def test_what_else_the_broker_would_obey_is_not(
    subject: str, headers: list[Header], expected: str
) -> None:
    assert expected in why(subject, headers)
