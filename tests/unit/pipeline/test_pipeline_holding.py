"""When a lake may be taken, and for how long a failing query is started again."""

from __future__ import annotations

from penstock.pipeline.core.holding import LEASE_SECONDS, Holder, Record, is_free, may_act
from penstock.pipeline.core.patience import PATIENCE_SECONDS, after_failure, pause_seconds

HELD = Record(holder=Holder(host="h", pid=1, place="p", born=0.0), epoch=1)


def test_a_lake_is_free_once_its_holder_let_go_died_or_fell_silent() -> None:
    assert not is_free(HELD, 0.0, holder_is_gone=False)
    assert is_free(Record(holder=HELD.holder, epoch=1, over=True), 0.0, holder_is_gone=False)
    assert is_free(HELD, 0.0, holder_is_gone=True)
    assert is_free(HELD, LEASE_SECONDS, holder_is_gone=False)


def test_what_cannot_be_read_may_be_being_written() -> None:
    assert not is_free(None, LEASE_SECONDS / 2, holder_is_gone=False)
    assert is_free(None, LEASE_SECONDS, holder_is_gone=False)


def test_a_holder_stops_before_anybody_else_may_start() -> None:
    assert may_act(now=100.0, renewed_at=100.0)
    last = next(s for s in range(100) if not may_act(float(s), 0.0))
    assert last < LEASE_SECONDS


def test_failures_in_a_row_are_further_and_further_apart_until_patience_ends() -> None:
    trouble, pauses = after_failure(None, 5, 0.0), []
    for _ in range(8):
        pauses.append(pause_seconds(trouble, 1.0))
        trouble = after_failure(trouble, 5, 1.0)
    assert pauses == sorted(pauses, key=lambda pause: pause or 0.0)
    assert pauses[0] != pauses[-1]
    assert pause_seconds(trouble, PATIENCE_SECONDS) is None


def test_a_batch_that_landed_ends_the_row() -> None:
    trouble = after_failure(after_failure(None, 5, 0.0), 6, PATIENCE_SECONDS)
    assert (trouble.count, trouble.since) == (1, PATIENCE_SECONDS)
