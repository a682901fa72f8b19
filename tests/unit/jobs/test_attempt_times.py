"""The time of a job's last attempt, split into waiting and running."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.reading.attempt_times import AttemptTimes, attempt_times

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
DONE = JobRecord(
    id="j",
    queue="lake",
    function="shop.load",
    payload=b"",
    state=State.COMPLETED,
    sequence=3,
    dispatched_at=NOW,
    available_at=NOW + timedelta(seconds=10),
    started_at=NOW + timedelta(seconds=61),
    run_seconds=3.0,
)


@pytest.mark.parametrize(
    ("job", "times"),
    [
        pytest.param(DONE, AttemptTimes(51.0, 3.0), id="waits from when it is due"),
        pytest.param(
            replace(DONE, state=State.RUNNING),
            AttemptTimes(51.0, None, DONE.started_at),
            id="the run time of an earlier attempt is not that of the running one",
        ),
        pytest.param(
            replace(DONE, state=State.RETRYING, available_at=NOW + timedelta(seconds=90)),
            AttemptTimes(None, 3.0),
            id="a further attempt is due",
        ),
        pytest.param(replace(DONE, started_at=None), AttemptTimes(), id="not started"),
        pytest.param(replace(DONE, kind="workflow"), AttemptTimes(), id="a workflow"),
    ],
)
def test_the_last_attempt(job: JobRecord, times: AttemptTimes) -> None:
    assert attempt_times(job) == times
