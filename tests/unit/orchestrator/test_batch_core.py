"""A batch: events in, instructions out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.events.batch import (
    BatchClosed,
    BatchCompleted,
    BatchCreated,
    BatchFailed,
    BatchProgressed,
    BatchReopened,
    BatchStopping,
    Counts,
)
from penstock.events.envelope import UnknownEvent
from penstock.events.job import JobError
from penstock.jobs.batches import batch_record
from penstock.jobs.derived_ids import Member
from penstock.jobs.errors import IllegalTransition
from penstock.orchestrator.core.batch import Batch, BatchSnapshot
from penstock.orchestrator.core.instructions import Append, CallBack, Cancel
from penstock.orchestrator.core.tally import Slot, Tally

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
LANE = "0123abcd"


class Story:
    """A batch that is told its events one after the other."""

    def __init__(self, **options: Any) -> None:
        created = BatchCreated(batch_id="b", at=NOW, **options)
        self.batch = Batch(batch_record.evolve(None, created, 1), "test")
        self.sequence = 1

    def jobs(self, *told: str) -> Story:
        """``0 JobDispatched``: the job's number and its event."""
        for each in told:
            self.sequence += 1
            number, event = each.split()
            place = Member("b", LANE, int(number))
            self.batch.see_job(place, event, self.sequence, NOW.timestamp())
        return self

    def says(self, event: Any) -> Story:
        self.sequence += 1
        self.batch.see(event, self.sequence)
        return self

    def closed(self) -> Story:
        return self.says(BatchClosed(batch_id="b", at=NOW))

    def event(self, after: float = 0.0) -> Any:
        found = self.batch.decide(NOW + timedelta(seconds=after))
        assert isinstance(found, Append)
        assert found.sequence == self.batch.record.sequence
        return found.event


def test_it_ends_with_its_last_job_once_closed() -> None:
    story = Story().jobs("0 JobDispatched", "0 JobCompleted")
    assert story.batch.decide(NOW) is None
    assert isinstance(story.closed().event(), BatchCompleted)


def test_its_end_says_how_long_it_took_and_what_failed_first() -> None:
    story = Story(allowed_failures=0, total=12).jobs(
        *(f"{number} JobDispatched" for number in range(12))
    )
    assert story.batch.record.total == 12
    error = JobError(kind="builtins.ValueError", message="x" * 5_000, traceback="long")
    for number in (7, *(n for n in range(12) if n != 7)):
        story.sequence += 1
        story.batch.see_job(Member("b", LANE, number), "JobDead", story.sequence, 0.0, error)
    restored = Batch.restored(story.batch.snapshot(), "test")
    for batch in (story.batch, restored):
        stopping = batch.decide(NOW)
        assert isinstance(stopping, Append)
    story.says(stopping.event)
    ended = story.event(90)
    assert isinstance(ended, BatchFailed)
    assert (ended.seconds, len(ended.failed_jobs)) == (90.0, 10)
    assert ended.failed_jobs[0] == f"b_{LANE}_7"
    assert ended.error == JobError(kind="builtins.ValueError", message="x" * 1_000)
    record = story.says(ended).batch.record
    assert (record.failed_jobs, record.error) == (ended.failed_jobs, ended.error)
    assert record.cancelled_at is None
    again = story.says(BatchReopened(batch_id="b", at=NOW, round=1)).batch.record
    assert (again.failed_jobs, again.error, again.seconds) == ((), None, 0.0)


def test_it_is_pending_until_its_first_job_starts() -> None:
    story = Story().jobs("0 JobDispatched", "1 JobDispatched").closed()
    assert story.batch.record.status == "pending"
    began = NOW + timedelta(seconds=3)
    story.sequence += 1
    story.batch.see_start(story.sequence, began)
    story.sequence += 1
    story.batch.see_start(story.sequence, began + timedelta(seconds=9))
    progress = story.event(4)
    assert (progress.started_at, progress.counts) == (began, Counts(pending=2))
    shown = batch_record.evolve(
        batch_record.evolve(None, BatchCreated(batch_id="b", at=NOW), 1), progress, 2
    )
    assert (shown.status, shown.started_at) == ("processing", began)
    story.says(progress)
    assert story.batch.decide(NOW + timedelta(seconds=9)) is None
    assert story.jobs("0 JobCompleted", "1 JobCompleted").event(10).started_at == began


def test_a_job_that_is_added_by_another_holds_it() -> None:
    story = Story().jobs("0 JobDispatched").closed()
    story.jobs("1 JobDispatched", "0 JobCompleted")
    assert story.batch.decide(NOW) is None
    assert story.jobs("1 JobCompleted").event().counts == Counts(completed=2)


def test_what_was_seen_before_is_not_counted_again() -> None:
    story = Story().jobs("0 JobDispatched", "1 JobDispatched", "0 JobCompleted")
    story.batch.see_job(Member("b", LANE, 1), "JobCompleted", 2, 0.0)  # late, from long ago
    assert story.batch.tally.counts == Counts(pending=1, completed=1)


def test_too_many_failures_stop_the_rest_and_fail_it() -> None:
    story = Story(allowed_failures=1)
    story.jobs(*(f"{n} JobDispatched" for n in range(4)), "0 JobDead").closed()
    assert story.batch.decide(NOW) is None
    stopping = story.jobs("1 JobDead").event()
    assert isinstance(stopping, BatchStopping)
    cancel = story.says(stopping).batch.decide(NOW)
    assert isinstance(cancel, Cancel)
    assert cancel.job_ids == (f"b_{LANE}_2", f"b_{LANE}_3")
    story.jobs("2 JobCancelled", "3 JobCompleted")
    failed = story.event(after=2)
    assert isinstance(failed, BatchFailed)
    assert failed.counts == Counts(completed=1, failed=2, cancelled=1)
    called = story.says(failed).batch.decide(NOW)
    assert isinstance(called, CallBack)
    assert called.success is False


def test_an_end_that_may_not_follow_does_not_count() -> None:
    story = Story().jobs("0 JobDispatched", "1 JobDispatched", "0 JobDead")
    story.jobs("0 JobCompleted", "0 JobDispatched", "1 JobCompleted", "1 JobDead", "1 JobRevived")
    assert story.batch.tally.counts == Counts(failed=1, completed=1)
    assert story.jobs("0 JobRevived").batch.tally.counts == Counts(pending=1, completed=1)


def test_what_is_passed_over_moves_the_sequence_that_the_next_event_expects() -> None:
    story = Story().jobs("0 JobDispatched", "0 JobCompleted").closed()
    with pytest.raises(IllegalTransition):
        story.says(BatchClosed(batch_id="b", at=NOW))
    story.says(UnknownEvent(type="BatchFailed", raw=b"", unreadable="empty"))
    assert isinstance(story.event(), BatchCompleted)
    assert story.batch.record.sequence == story.sequence


def test_a_share_is_judged_when_all_jobs_are_known() -> None:
    story = Story(allowed_percent=50.0).jobs("0 JobDispatched", "0 JobDead")
    assert story.batch.decide(NOW) is None
    story.jobs("1 JobDispatched", "1 JobCompleted").closed()
    assert isinstance(story.event(), BatchCompleted)


def test_progress_is_told_once_a_second() -> None:
    story = Story().jobs("0 JobDispatched")
    assert story.batch.decide(NOW + timedelta(seconds=0.5)) is None
    progressed = story.event(after=1.0)
    assert progressed.counts == Counts(pending=1)
    assert isinstance(progressed, BatchProgressed)
    story.says(progressed)
    assert story.batch.decide(NOW + timedelta(seconds=3)) is None


def test_one_left_open_is_given_up() -> None:
    story = Story(open_seconds=60.0).jobs("0 JobDispatched")
    story.jobs("0 JobCompleted")
    story.batch.record = msgspec.structs.replace(story.batch.record, counts=Counts(completed=1))
    assert story.batch.decide(NOW + timedelta(seconds=59)) is None
    stopping = story.event(after=61)
    assert (stopping.cause, stopping.name) == ("abandoned", "BatchStopping")


EVENTS = st.sampled_from(["JobDispatched", "JobCompleted", "JobDead", "JobCancelled", "JobRevived"])


@given(st.lists(st.tuples(st.integers(0, 5), EVENTS)), st.integers(0, 30))
def test_a_snapshot_anywhere_changes_nothing(told: list[tuple[int, str]], cut: int) -> None:
    """Restored and told again from before the snapshot, it counts the same."""
    whole, first = Story(), Story()
    lines = [f"{number} {event}" for number, event in told]
    whole.jobs(*lines)
    first.jobs(*lines[:cut])
    packed = msgspec.msgpack.encode(first.batch.snapshot())
    story = Story()
    story.batch = Batch.restored(msgspec.msgpack.decode(packed, type=BatchSnapshot), "test")
    story.jobs(*lines)
    assert story.batch.tally.counts == whole.batch.tally.counts


@given(st.lists(st.tuples(st.integers(0, 300), st.sampled_from(list(Slot)[1:]))))
def test_a_tally_is_the_count_of_the_last_word_on_each(puts: list[tuple[int, Slot]]) -> None:
    tally = Tally()
    for number, slot in puts:
        tally.put(Member("b", LANE, number), slot)
    last = list(dict(puts).values())
    counts = tally.counts
    assert counts.pending == last.count(Slot.PENDING) == len(list(tally.pending("b")))
    assert counts.failed == last.count(Slot.FAILED)
    assert Tally(tally.pack()).counts == counts
