"""What to do with a queue message whose compare-and-set lost: every state, every message."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.unit.jobs.telling import NOW, event, told

from penstock.events.job import (
    JobCancelled,
    JobCompleted,
    JobDead,
    JobDispatched,
    JobFailed,
    JobRecovered,
    JobReleased,
    JobRetrying,
    JobStarted,
)
from penstock.jobs.lifecycle import JobRecord
from penstock.worker.core.settle import Action, settle

MESSAGE, ANOTHER = 10, 11
RUNNING = (JobDispatched, event(JobStarted, message=MESSAGE))
LOST_TWICE = told(*RUNNING, JobRecovered, *RUNNING[1:], JobRecovered, *RUNNING[1:])
DELAYED = told(event(JobDispatched, due_at=NOW + timedelta(seconds=30)))
RETRYING = told(*RUNNING, JobFailed, JobRetrying)


@pytest.mark.parametrize(
    ("record", "message", "after_seconds", "action"),
    [
        (told(JobDispatched), MESSAGE, 0, Action.START),
        (told(*RUNNING, JobReleased), MESSAGE, 0, Action.START),
        (told(*RUNNING, JobReleased), ANOTHER, 0, Action.START),
        (told(*RUNNING, JobRecovered), MESSAGE, 0, Action.START),
        (told(*RUNNING), MESSAGE, 0, Action.RECOVER),
        (told(*RUNNING), ANOTHER, 0, Action.DROP),
        (LOST_TWICE, MESSAGE, 0, Action.POISON),
        (LOST_TWICE, ANOTHER, 0, Action.DROP),
        (DELAYED, MESSAGE, 0, Action.FOLLOW_UP),
        (DELAYED, MESSAGE, 31, Action.START),
        (RETRYING, MESSAGE, 0, Action.FOLLOW_UP),
        (RETRYING, ANOTHER, 30, Action.START),
        (RETRYING, MESSAGE, 30, Action.FOLLOW_UP),
        (told(*RUNNING, JobDead), MESSAGE, 0, Action.FOLLOW_UP),
        (told(*RUNNING, JobCompleted), MESSAGE, 0, Action.DROP),
        (told(JobDispatched, JobCancelled), MESSAGE, 0, Action.DROP),
    ],
)
def test_the_answer(record: JobRecord, message: int, after_seconds: float, action: Action) -> None:
    now = NOW + timedelta(seconds=after_seconds)
    assert settle(record, message, now, max_lost_workers=3) is action


def test_lost_workers_are_told_from_failures() -> None:
    failed_between = told(
        *RUNNING, JobRecovered, *RUNNING[1:], JobFailed, JobRetrying, *RUNNING[1:]
    )
    assert settle(failed_between, MESSAGE, NOW, max_lost_workers=2) is Action.RECOVER
