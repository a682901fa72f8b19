"""The event log as the reconciler reads it: what others forge ends nothing."""

from __future__ import annotations

import pytest

from penstock.bus.protocol import Stored
from penstock.events.envelope import utc_now
from penstock.orchestrator.reconciling.transitions import step


def stored(event: str, body: str) -> Stored:
    return Stored(f"p.events.job.j.{event}", 1, utc_now(), body.encode(), {})


def dispatched(due_at: str) -> Stored:
    body = f'{{"type":"JobDispatched","job_id":"j","queue":"mail","due_at":"{due_at}"}}'
    return stored("JobDispatched", body)


def test_a_delayed_job_is_a_step() -> None:
    found = step(dispatched("2026-11-22T10:00:00+01:00"))
    assert found is not None
    assert found.due_at == 1_795_338_000.0


@pytest.mark.parametrize(
    "due_at",
    [
        "0001-01-01T00:00:00",  # no zone: its timestamp is one of year 0
        "2026-11-22T10:00:00",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
    ],
)
def test_a_time_that_cannot_be_is_passed_over(due_at: str) -> None:
    assert step(dispatched(due_at)) is None


@pytest.mark.parametrize(
    ("available_at", "changed_by"),
    [
        ("0001-01-01T00:00:00", "1"),
        ("9999-12-31T23:59:59-23:59", "1"),
        ("2026-11-22T10:00:00Z", "1" + "0" * 400),
    ],
)
def test_a_carried_job_that_cannot_be_is_passed_over(available_at: str, changed_by: str) -> None:
    body = (
        '{"type":"JobCarried","job_id":"j","queue":"mail","state":"scheduled",'
        f'"available_at":"{available_at}","changed_by":{changed_by}}}'
    )
    assert step(stored("JobCarried", body)) is None
