"""What follows from a failed attempt, and errors as they are recorded."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from tests.unit.jobs.telling import BROKEN, JOB, NOW

from penstock.events.job import JobDead, JobError, JobEvent, JobFailed, JobRetrying
from penstock.jobs import Backoff
from penstock.worker.core.outcome import error_of, failed, timed_out, too_large


def verdict(attempt: int, tries: int) -> tuple[JobEvent, ...]:
    return failed(
        job_id=JOB, queue="reports", attempt=attempt, tries=tries,
        backoff=Backoff(first_seconds=4, jitter=0), error=BROKEN, run_seconds=0.5, now=NOW,
        source="worker/h.w",
    )  # fmt: skip


def test_a_failure_goes_again_while_tries_are_left() -> None:
    failure, retrying = verdict(attempt=2, tries=3)
    assert isinstance(failure, JobFailed)
    assert (failure.attempt, failure.error, failure.run_seconds) == (2, BROKEN, 0.5)
    assert isinstance(retrying, JobRetrying)
    assert (retrying.attempt, retrying.due_at) == (3, NOW + timedelta(seconds=8))
    assert retrying.causation_id == failure.id


@pytest.mark.parametrize(("attempt", "tries"), [(3, 3), (1, 1), (5, 3)])
def test_the_last_try_is_the_end(attempt: int, tries: int) -> None:
    failure, dead = verdict(attempt, tries)
    assert isinstance(dead, JobDead)
    assert (dead.error, dead.queue, dead.causation_id) == (BROKEN, "reports", failure.id)


class Mute(Exception):
    def __str__(self) -> str:
        raise KeyError("no text either")


def test_an_error_tells_what_it_is() -> None:
    found = error_of(ValueError("no such table"), "Traceback …")
    assert found == JobError(
        kind="builtins.ValueError", message="no such table", traceback="Traceback …"
    )
    assert error_of(Mute(), "").kind.endswith(".Mute")
    assert timed_out(2.5).message == "ran longer than its 2.5 s"
    assert too_large(9, 5).kind == "result-too-large"


@pytest.mark.parametrize(
    "error", [Mute(), ValueError("x" * 10**6), ValueError("\ud800"), SystemExit(3), Exception()]
)
def test_any_error_can_be_recorded(error: BaseException) -> None:
    found = error_of(error, "\udfff" + "y" * 10**6)
    assert len(found.message) <= 4_000
    assert len(found.traceback) <= 16_000
    assert msgspec.json.decode(msgspec.json.encode(found), type=JobError) == found
