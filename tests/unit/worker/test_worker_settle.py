"""What to do with a queue message whose compare-and-set lost: every state, every message."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from tests.unit.jobs.telling import NOW, event, told

from penstock.events.job import (
    JobCancelled,
    JobCompleted,
    JobDead,
    JobDispatched,
    JobEvent,
    JobFailed,
    JobRecovered,
    JobReleased,
    JobRetrying,
    JobRevived,
    JobStarted,
)
from penstock.jobs.lifecycle import JobRecord
from penstock.worker.core.settle import Action, settle

MESSAGE, ANOTHER = 10, 11
FIRST, SECOND = 1, 2
RUNNING = (JobDispatched, event(JobStarted, message=MESSAGE))
LOST_TWICE = told(*RUNNING, JobRecovered, *RUNNING[1:], JobRecovered, *RUNNING[1:])
DELAYED = told(event(JobDispatched, due_at=NOW + timedelta(seconds=30)))
RETRYING = told(*RUNNING, JobFailed, JobRetrying)


@pytest.mark.parametrize(
    ("record", "message", "made_for", "after_seconds", "action"),
    [
        (told(JobDispatched), MESSAGE, FIRST, 0, Action.START),
        (told(*RUNNING, JobReleased), MESSAGE, FIRST, 0, Action.START),
        (told(*RUNNING, JobReleased), ANOTHER, FIRST, 0, Action.DROP),
        (told(*RUNNING, JobRecovered), MESSAGE, FIRST, 0, Action.START),
        (told(*RUNNING), MESSAGE, FIRST, 0, Action.RECOVER),
        (told(*RUNNING), ANOTHER, FIRST, 0, Action.DROP),
        (LOST_TWICE, MESSAGE, FIRST, 0, Action.POISON),
        (LOST_TWICE, ANOTHER, FIRST, 0, Action.DROP),
        (DELAYED, MESSAGE, FIRST, 0, Action.FOLLOW_UP),
        (DELAYED, MESSAGE, FIRST, 31, Action.START),
        (RETRYING, ANOTHER, SECOND, 0, Action.FOLLOW_UP),
        (RETRYING, ANOTHER, SECOND, 30, Action.START),
        (RETRYING, ANOTHER, FIRST, 30, Action.FOLLOW_UP),
        (RETRYING, MESSAGE, FIRST, 30, Action.FOLLOW_UP),
        (told(*RUNNING, JobDead), MESSAGE, FIRST, 0, Action.FOLLOW_UP),
        (told(*RUNNING, JobCompleted), MESSAGE, FIRST, 0, Action.DROP),
        (told(JobDispatched, JobCancelled), MESSAGE, FIRST, 0, Action.DROP),
    ],
)
def test_the_answer(
    record: JobRecord, message: int, made_for: int, after_seconds: float, action: Action
) -> None:
    now = NOW + timedelta(seconds=after_seconds)
    made_from = record.life_from
    assert settle(record, message, made_from, made_for, now, max_lost_workers=3) is action


@pytest.mark.parametrize("later", [(), (event(JobStarted, message=ANOTHER),), (JobDead,)])
def test_a_message_of_a_life_that_is_over_starts_nothing_in_the_new_one(
    later: tuple[type[JobEvent] | JobEvent, ...],
) -> None:
    """It may be acknowledged late by whoever held it then; the new life has its own message."""
    record = told(*RUNNING, JobDead, JobRevived, *later)
    assert settle(record, MESSAGE, 1, FIRST, NOW, max_lost_workers=3) is Action.DROP


def test_rubbish_behind_a_snooze_does_not_make_its_own_message_an_old_one() -> None:
    snoozed = told(*RUNNING, event(JobRetrying, attempt=FIRST, put_off="rate limit"))
    later = msgspec.structs.replace(snoozed, sequence=snoozed.sequence + 5)
    now = NOW + timedelta(seconds=31)
    assert settle(later, ANOTHER, snoozed.sequence, FIRST, now, 3) is Action.START
    assert settle(later, ANOTHER, snoozed.sequence - 1, FIRST, now, 3) is Action.FOLLOW_UP


def test_lost_workers_are_told_from_failures() -> None:
    failed_between = told(
        *RUNNING, JobRecovered, *RUNNING[1:], JobFailed, JobRetrying, *RUNNING[1:]
    )
    assert settle(failed_between, MESSAGE, 1, FIRST, NOW, max_lost_workers=2) is Action.RECOVER
