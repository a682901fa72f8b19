"""The oracle is not blind: for each rule a history that breaks it, and one that keeps them all."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.histories import (
    Breach,
    Evidence,
    Histories,
    Run,
    broken,
    check,
    expired,
    miscounted,
    overlapping,
    unended,
    unread,
    unwitnessed,
)

from penstock.events.batch import Counts
from penstock.events.envelope import UnknownEvent
from penstock.events.job import (
    JobCancelled,
    JobCompleted,
    JobDead,
    JobDispatched,
    JobError,
    JobEvent,
    JobFailed,
    JobProgressed,
    JobRecovered,
    JobRetrying,
    JobRevived,
    JobStarted,
)
from penstock.verifying.rules import History, Rule

ERROR = JobError(kind="poison", message="")
NOW = datetime(2026, 11, 20, tzinfo=UTC)


def dispatched() -> JobEvent:
    return JobDispatched(job_id="a", queue="q", function="f", payload=b"")


def started(worker: str = "w1", attempt: int = 1) -> JobEvent:
    return JobStarted(
        job_id="a", queue="q", attempt=attempt, host="h", worker=worker, source=worker
    )


def completed(worker: str = "w1", attempt: int = 1) -> JobEvent:
    return JobCompleted(job_id="a", queue="q", attempt=attempt, run_seconds=1, source=worker)


def failed(worker: str = "w1", attempt: int = 1) -> JobEvent:
    return JobFailed(job_id="a", queue="q", attempt=attempt, error=ERROR, source=worker)


def retrying(attempt: int = 2) -> JobEvent:
    return JobRetrying(job_id="a", attempt=attempt, due_at=NOW)


def dead() -> JobEvent:
    return JobDead(job_id="a", queue="q", error=ERROR)


def recovered() -> JobEvent:
    return JobRecovered(job_id="a", reason="lost")


def revived() -> JobEvent:
    return JobRevived(job_id="a", queue="q", function="f", payload=b"")


def story(*events: Any, job_id: str = "a") -> dict[str, History]:
    return {job_id: list(enumerate(events, 1))}


def rules(found: list[Breach]) -> set[Rule | Evidence]:
    return {breach.rule for breach in found}


GOOD = {
    "at once": (dispatched(), started(), completed()),
    "lost once": (dispatched(), started("w1"), recovered(), started("w2"), completed("w2")),
    "tried again": (
        dispatched(), started(), failed(), retrying(), started("w2", 2), completed("w2", 2)
    ),
    "revived": (dispatched(), started(), failed(), dead(), revived(), started(), completed()),
    "cancelled": (dispatched(), JobCancelled(job_id="a", reason="")),
}  # fmt: skip

BAD: dict[str, tuple[Rule | Evidence, tuple[Any, ...]]] = {
    "completed twice": (Rule.ONCE, (dispatched(), started(), completed(), completed())),
    "started after its end": (Rule.ONCE, (dispatched(), started(), completed(), started("w2"))),
    "dead and completed": (Rule.ONCE, (dispatched(), started(), dead(), completed())),
    "completed before it started": (Rule.LEGAL, (dispatched(), completed())),
    "taken from a worker that was not lost": (
        Rule.LEGAL, (dispatched(), started("w1"), started("w2"), completed("w2"))
    ),
    "an unknown event": (
        Evidence.VERSION, (dispatched(), UnknownEvent(type="JobTeleported", raw=b""))
    ),
    "an attempt counted down": (
        Rule.TOKEN, (dispatched(), started("w1", 2), recovered(), started("w2", 1))
    ),
    "a deposed worker completes": (
        Rule.OUTDATED,
        (dispatched(), started("w1"), recovered(), started("w2"), completed("w1")),
    ),
    "a deposed worker fails": (
        Rule.OUTDATED, (dispatched(), started("w1"), recovered(), started("w2"), failed("w1"))
    ),
    "a deposed worker tells its progress": (
        Rule.OUTDATED,
        (dispatched(), started("w1"), recovered(), started("w2"),
         JobProgressed(job_id="a", done=1, source="w1")),
    ),
    "the completion of an earlier attempt": (
        Rule.OUTDATED,
        (dispatched(), started(), failed(), retrying(), started("w1", 2), completed("w1", 1)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("events", GOOD.values(), ids=GOOD)
def test_what_may_be_is_not_reproached(events: tuple[JobEvent, ...]) -> None:
    assert check(story(*events), ["a"])["a"].state.ended


@pytest.mark.parametrize(("rule", "events"), BAD.values(), ids=BAD)
def test_what_must_not_be_is_found(rule: Rule | Evidence, events: tuple[Any, ...]) -> None:
    assert rule in rules(broken(story(*events)))


def test_a_token_that_does_not_grow_is_found() -> None:
    swapped = {"a": [(1, dispatched()), (3, started()), (2, recovered()), (4, started("w2"))]}
    assert rules(broken(swapped)) == {Rule.TOKEN}


@pytest.mark.parametrize(
    "histories",
    [
        {},
        story(dispatched()),
        story(dispatched(), started()),
        story(dispatched(), started(), dead(), revived()),
    ],
    ids=["not in the log", "waiting", "running", "revived and waiting"],
)  # fmt: skip
def test_an_acknowledged_job_without_an_end_is_found(histories: Histories) -> None:
    assert rules(unended(histories, ["a"])) == {Rule.ENDS}
    with pytest.raises(AssertionError, match="rule: ends"):
        check(histories, ["a"])


BATCH = {
    f"b_01234567_{number}": [(number * 9 + n, event) for n, event in enumerate(events, 1)]
    for number, events in enumerate([GOOD["at once"], GOOD["lost once"], GOOD["cancelled"]])
}


@pytest.mark.parametrize(
    ("size", "counts", "right"),
    [
        (3, Counts(completed=2, cancelled=1), True),
        (3, Counts(completed=3), False),
        (3, Counts(completed=1, cancelled=1, pending=1), False),
        (4, Counts(completed=2, cancelled=1), False),
    ],
    ids=["right", "one taken for another", "one not counted", "one never dispatched"],
)
def test_counts_are_recounted(size: int, counts: Counts, right: bool) -> None:
    assert (miscounted(BATCH, {"b": (size, counts)}) == []) is right


def test_a_batch_that_counted_a_job_twice_is_found() -> None:
    twice = {"b": (3, Counts(completed=3, cancelled=1))}
    assert rules(miscounted(BATCH, twice)) == {Rule.BATCH}


def test_events_that_were_not_read_are_found() -> None:
    subject = "p.events.job.{}.JobStarted".format
    whole = story(*GOOD["at once"])
    assert unread(whole, {subject("a"): 2, "p.events.job.a.JobCompleted": 1}) == []
    assert rules(unread(whole, {subject("a"): 4})) == {Evidence.RECOUNT}
    assert rules(unread(whole, {subject("a"): 3, subject("b"): 1})) == {Evidence.RECOUNT}


@pytest.mark.parametrize(
    ("runs", "right"),
    [([Run("a", 2, 0, 1)], True), ([], False), ([Run("a", 2, 0, 1), Run("a", 9, 1, 2)], False)],
    ids=["as recorded", "completed without a run", "a run without a token"],
)
def test_the_log_tells_what_happened(runs: list[Run], right: bool) -> None:
    assert (unwitnessed(story(*GOOD["at once"]), runs, ["a"]) == []) is right


@pytest.mark.parametrize(
    ("runs", "found"),
    [
        ([Run("a", 1, 0, 1), Run("b", 2, 1, 2), Run("a", 3, 3, 4)], set()),
        ([Run("a", 1, 0, 1.1), Run("b", 2, 1, 2)], {Evidence.EXCLUSIVE}),
        ([Run("a", 1, 0, 5), Run("b", 2, 1, 2), Run("c", 3, 3, 4)], {Evidence.EXCLUSIVE}),
        ([Run("a", 3, 0, 1), Run("b", 2, 1, 2)], {Rule.TOKEN}),
    ],
    ids=["one after another", "overlapping", "one within another's time", "an older token later"],
)  # fmt: skip
def test_an_overlap_is_found(runs: list[Run], found: set[Rule | Evidence]) -> None:
    assert rules(overlapping(runs)) == found


def test_a_job_that_expires_before_its_time_is_found() -> None:
    early = story(dispatched(), JobCancelled(job_id="a", reason="", cause="expired"))
    assert rules(expired(early)) == {Evidence.EXPIRED}
    assert expired(story(*GOOD["cancelled"])) == []
