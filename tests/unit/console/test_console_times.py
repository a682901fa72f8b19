"""The times that rows are ordered by and ages counted from are bounded by the broker's clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from penstock.bus.protocol import Stored
from penstock.console.core import job_rows
from penstock.console.core.log_entry import micros
from penstock.console.read_models.log_batches import entry
from penstock.events.envelope import encode
from penstock.events.job import JobDispatched
from penstock.events.subjects import Subjects

STORED_AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        (datetime(2999, 1, 1, tzinfo=UTC), STORED_AT),
        (STORED_AT + timedelta(seconds=1), STORED_AT),
        (STORED_AT - timedelta(seconds=1), STORED_AT - timedelta(seconds=1)),
        (datetime(1970, 1, 2, tzinfo=UTC), STORED_AT - DAY),
    ],
)
def test_a_dispatch_is_about_as_old_as_its_message(said: datetime, taken: datetime) -> None:
    event = JobDispatched(job_id="j", queue="q", function="f", payload=b"", at=said)
    row = job_rows.advance(
        None, entry(Stored(Subjects().event(event), 1, STORED_AT, encode(event)))
    )
    assert row is not None
    assert (row.dispatched_us, row.available_us) == (micros(taken), micros(taken))


def test_a_job_may_be_due_at_any_later_time() -> None:
    due_at = datetime(2999, 1, 1, tzinfo=UTC)
    event = JobDispatched(
        job_id="j", queue="q", function="f", payload=b"", at=STORED_AT, due_at=due_at
    )
    row = job_rows.advance(
        None, entry(Stored(Subjects().event(event), 1, STORED_AT, encode(event)))
    )
    assert row is not None
    assert row.available_us == micros(due_at)
