"""The table of steps that nothing has followed, and the judgement on each."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.orchestrator.core import judge
from penstock.orchestrator.core.judge import Verdict
from penstock.orchestrator.core.shares import Shares
from penstock.orchestrator.core.unresolved import AWAITED, Awaits, Entry, Step, Unresolved


class Log:
    """An event log, read into a table."""

    def __init__(self, limit: int = 100, **options: Any) -> None:
        self.table = Unresolved(10, limit, **options)
        self.steps: list[Step] = []

    def add(self, event: str, job_id: str = "j", **fields: Any) -> Log:
        number = len(self.steps) + 1
        step = Step(job_id=job_id, event=event, sequence=number, at=float(number), **fields)
        self.steps.append(step)
        self.table.see(step)
        return self

    def kept(self, now: float = 1e9) -> dict[str, Awaits]:
        return {entry.job_id: entry.awaits for entry in self.table.due(now)}


@pytest.mark.parametrize(
    ("event", "fields", "awaits"),
    [
        ("JobDispatched", {"queue": "q"}, Awaits.QUEUE_MESSAGE),
        ("JobDispatched", {"queue": "q", "due_at": 99.0}, Awaits.SCHEDULE),
        ("JobRetrying", {"due_at": 99.0}, Awaits.SCHEDULE),
        ("JobReleased", {}, Awaits.QUEUE_MESSAGE),
        ("WorkflowFixed", {"queue": "q"}, Awaits.QUEUE_MESSAGE),
        ("JobDead", {"queue": "q"}, Awaits.DEAD_LETTER),
    ],
)
def test_what_a_step_calls_for(event: str, fields: dict[str, Any], awaits: Awaits) -> None:
    assert Log().add(event, **fields).kept() == {"j": awaits}


@pytest.mark.parametrize("event", ["JobStarted", "JobCancelled"])
def test_what_follows_closes_it(event: str) -> None:
    log = Log().add("JobDispatched").add(event)
    assert log.kept() == {}
    assert log.table.cursor() == 3


def test_each_step_replaces_the_one_before() -> None:
    log = Log().add("JobDispatched").add("JobStarted").add("JobRetrying", due_at=9.0)
    assert log.kept() == {"j": Awaits.SCHEDULE}
    assert log.add("JobStarted").add("JobDead").kept() == {"j": Awaits.DEAD_LETTER}


@pytest.mark.parametrize("event", ["JobStarted", "JobCancelled"])
def test_what_may_not_follow_a_death_does_not_close_it(event: str) -> None:
    assert Log().add("JobDead").add(event).kept() == {"j": Awaits.DEAD_LETTER}


def test_nobody_looks_before_its_time() -> None:
    log = Log().add("JobDispatched")
    assert (log.kept(10.9), log.kept(11)) == ({}, {"j": Awaits.QUEUE_MESSAGE})


def test_the_cursor_is_the_first_step_that_waits() -> None:
    log = Log().add("JobDispatched", "a").add("JobDispatched", "b").add("JobDispatched", "c")
    assert log.table.cursor() == 1
    assert log.add("JobStarted", "a").table.cursor() == 2
    assert log.add("JobStarted", "c").table.cursor() == 2
    assert log.add("JobStarted", "b").table.cursor() == 7


def test_a_cursor_that_saw_nothing_new_stays() -> None:
    table = Unresolved(10, 100, start=41, dead_letters_from=45)
    assert (table.cursor(), table.dead_letters_from()) == (41, 45)

    resumed = Unresolved(10, 100)
    resumed.resume(41, 45)
    assert (resumed.cursor(), resumed.dead_letters_from()) == (41, 45)


def test_dead_letters_looked_after_by_an_earlier_process_are_left_alone() -> None:
    log = Log(dead_letters_from=2).add("JobDead", "a").add("JobDead", "b")
    assert log.kept() == {"b": Awaits.DEAD_LETTER}
    assert log.table.dead_letters_from() == 2
    log.table.resolve(next(log.table.due(1e9)))
    assert log.table.dead_letters_from() == 3


def test_resolving_an_old_entry_does_not_touch_a_later_step() -> None:
    log = Log().add("JobDispatched")
    old = next(log.table.due(1e9))
    log.add("JobReleased")
    log.table.resolve(old)
    assert log.kept() == {"j": Awaits.QUEUE_MESSAGE}


@given(st.integers(0, 2**32), st.integers(2, 12))
def test_memory_is_bounded_and_nothing_is_forgotten(seed: int, limit: int) -> None:
    """Any log, a small table: reading again where it says finds all that is unfinished."""
    source, log = random.Random(seed), Log(limit)
    for _ in range(60):
        log.add(source.choice([*AWAITED]), f"j{source.randrange(20)}", due_at=1.0)
        assert len(log.table) <= limit
    last = {step.job_id: step for step in log.steps}
    unfinished = {job for job, step in last.items() if AWAITED[step.event]}
    found: set[str] = set()
    for _ in range(60):
        kept = log.kept()
        found |= kept.keys()
        assert log.table.cursor() <= min(
            (last[job].sequence for job in unfinished - found), default=61
        )
        for entry in log.table.due(1e9):
            log.table.resolve(entry)
        if (start := log.table.read_again_from()) is None:
            break
        for step in log.steps[start - 1 :]:
            log.table.see(step)
    assert found >= unfinished
    assert log.table.cursor() == 61


@given(st.integers(0, 2**32), st.integers(8, 24))
def test_a_share_that_never_empties_keeps_no_other_waiting(seed: int, limit: int) -> None:
    """Invented queues fill their share for good; all of a named queue comes to be looked after."""
    source, log = random.Random(seed), Log(limit, shares=Shares(["mail"]))
    mails = set()
    for number in range(80):
        if source.random() < 0.3:
            mails.add(f"mail-{number}")
            log.add("JobDispatched", f"mail-{number}", queue="mail")
        else:
            log.add("JobDispatched", f"j{number}", queue=f"invented-{number}")
        assert len(log.table) <= limit
    looked_after: set[str] = set()
    for _ in range(80):
        for entry in log.table.due(1e9):
            if entry.queue == "mail":
                looked_after.add(entry.job_id)
                log.table.resolve(entry)
        if (start := log.table.read_again_from()) is None:
            break
        for step in log.steps[start - 1 :]:
            if step.job_id not in looked_after:
                log.table.see(step)
    assert looked_after == mails


def test_a_named_queue_has_its_turn_among_100_000_invented_ones() -> None:
    log = Log(300_000, shares=Shares(["mail"]))
    for number in range(100_000):
        log.add("JobDispatched", f"j{number}", queue=f"invented-{number}")
    for number in range(500):
        log.add("JobDispatched", f"mail-{number}", queue="mail")
    log.add("JobReleased", "unread")
    queues = [entry.queue for entry in log.table.shares.first(log.table.due(1e9), 200)]
    assert (queues.count("mail"), queues.count("")) == (
        99,
        1,
    )  # the rest of 200 is of invented ones


def test_queues_of_one_share_take_turns() -> None:
    log = Log()
    for name in ("a", "a", "a", "b", "b", "c"):
        log.add("JobDispatched", f"{name}{len(log.steps)}", queue=name)
    queues = [entry.queue for entry in Shares().in_turn(log.table.due(1e9))]
    assert "".join(queues) == "abcaba"


def entry(at: float = 100.0, due_at: float | None = None) -> Entry:
    awaits = Awaits.SCHEDULE if due_at else Awaits.QUEUE_MESSAGE
    step = Step(job_id="j", event="JobDispatched", sequence=1, at=at, queue="q", due_at=due_at)
    return Entry(step, awaits, 10)


class TestLine:
    @pytest.mark.parametrize("head_at", [5.0, 99.0, 100.1, 110.0])
    def test_behind_older_jobs_it_waits_its_turn(self, head_at: float) -> None:
        assert judge.in_line(entry(), head_at, 10) is Verdict.LATER

    @pytest.mark.parametrize("head_at", [None, 110.1, 500.0])
    def test_when_the_line_has_passed_it_is_missing(self, head_at: float | None) -> None:
        assert judge.in_line(entry(), head_at, 10) is Verdict.MISSING


class TestSchedule:
    def test_one_that_is_there_fires_by_itself(self) -> None:
        assert judge.scheduled(entry(due_at=900), True, 115, 10) is Verdict.RESOLVED

    def test_one_that_never_was(self) -> None:
        assert judge.scheduled(entry(due_at=900), False, 115, 10) is Verdict.MISSING

    def test_one_that_is_late_is_waited_for(self) -> None:
        assert judge.scheduled(entry(due_at=110), True, 115, 10) is Verdict.LATER

    def test_one_that_is_too_late_is_missing(self) -> None:
        assert judge.scheduled(entry(due_at=104), True, 115, 10) is Verdict.MISSING

    def test_one_that_fired_puts_the_job_in_line(self) -> None:
        late = entry(due_at=114)
        assert judge.scheduled(late, False, 115, 10) is Verdict.LATER
        judge.fired(late, 10)
        assert (late.awaits, late.since, late.check_at) == (Awaits.QUEUE_MESSAGE, 114, 124)
