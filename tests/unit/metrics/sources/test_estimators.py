"""What is worked out of counts, against lines of messages of which each one is known."""

from __future__ import annotations

from itertools import pairwise
from math import inf, nan

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.metrics.core.sources.arrivals import arrivals
from penstock.metrics.core.sources.look import MOST_MESSAGES, SourceFault, SourceLook, checked
from penstock.metrics.core.sources.shadow_line import ShadowLine
from penstock.metrics.core.sources.stuck import FIRST_PAUSE_SECONDS, STUCK_SECONDS, StuckWatch

SECOND = st.tuples(st.integers(0, 20), st.integers(0, 20))
"""Messages that come and that are taken within a second."""


class System:
    """A queue, first in first out, of which each message's arrival is known; one look a second."""

    def __init__(self) -> None:
        self.line: list[float] = []
        self.claimed = self.ended = self.arrived = 0
        self.waits: list[float] = []

    def live(self, second: int, come: int, taken: int, release: int = 0) -> None:
        self.ended += self.claimed
        self.claimed = 0
        self.line += [second + (nth + 0.5) / come for nth in range(come)]
        self.arrived += come
        taken = min(taken, len(self.line))
        self.waits = [max(second + 0.5 - came, 0.0) for came in self.line[:taken]]
        self.line, self.claimed = self.line[taken:], taken

    def look(self, *absent: str) -> SourceLook:
        seen = {
            "waiting": len(self.line), "claimed": self.claimed,
            "ended": self.ended, "arrived": self.arrived,
        }  # fmt: skip
        return SourceLook(**{name: value for name, value in seen.items() if name not in absent})


@given(st.lists(SECOND, max_size=30), st.sampled_from([(), ("arrived",)]))
def test_arrivals_are_exact_by_counters_and_by_balance(seconds, absent) -> None:
    system = System()
    before = system.look(*absent)
    for second, (come, taken) in enumerate(seconds):
        system.live(second, come, taken)
        after = system.look(*absent)
        moved = arrivals(before, after, None)
        assert moved is not None
        assert (moved.came, moved.exact) == (come, True)
        before = after


@given(st.lists(SECOND, max_size=30))
def test_without_counters_arrivals_are_those_less_the_ends_nobody_counts(seconds) -> None:
    system, before, ended = System(), SourceLook(waiting=0, claimed=0), 0
    for second, (come, taken) in enumerate(seconds):
        system.live(second, come, taken)
        after = system.look("arrived", "ended")
        reported, blind = (arrivals(before, after, ends) for ends in (system.ended - ended, None))
        assert reported is not None
        assert (reported.came, reported.exact) == (come, False)
        assert blind is not None
        assert blind.came <= come
        before, ended = after, system.ended


@pytest.mark.parametrize(
    "after",
    [
        SourceLook(waiting=5, arrived=3, epoch="a"),
        SourceLook(waiting=5, arrived=30, epoch="b"),
        SourceLook(waiting=5, ended=1, arrived=30, epoch="a"),
    ],
)
def test_counters_that_began_anew_are_not_compared(after) -> None:
    assert arrivals(SourceLook(waiting=5, arrived=20, ended=15, epoch="a"), after, None) is None


def test_a_purge_is_no_negative_arrival() -> None:
    before, after = (
        SourceLook(waiting=50, claimed=0, ended=1),
        SourceLook(waiting=0, claimed=0, ended=1),
    )
    moved = arrivals(before, after, None)
    assert moved is not None
    assert moved.came == 0


@given(st.lists(SECOND, max_size=60))
def test_the_shadow_line_knows_each_age_within_a_second(seconds) -> None:
    system, line = System(), ShadowLine(0.0, 0)
    for second, (come, taken) in enumerate(seconds):
        system.live(second, come, taken)
        now = second + 1.0
        gone = line.move(now, come, len(system.line))
        assert gone == len(system.waits)
        assert line.waiting == len(system.line)
        for place, age in line.ages(now, 5):
            assert age == pytest.approx(now - system.line[place], abs=1.0)
        waits = line.waits(gone, second + 0.5, 1000)
        assert waits == pytest.approx(system.waits, abs=1.0)


def test_a_long_line_is_bounded_and_stays_right() -> None:
    line = ShadowLine(0.0, 0)
    for second in range(1, 10_001):
        line.move(float(second), 1, second)
    assert len(line._times) <= 1025
    assert line.age_seconds(0, 10_000.0) == pytest.approx(10_000, rel=0.01)
    assert line.age_seconds(5_000, 10_000.0) == pytest.approx(5_000, rel=0.01)


def test_arrivals_that_are_taken_back_were_the_last_and_nobody_left_for_them_twice() -> None:
    line = ShadowLine(0.0, 0)
    line.move(10.0, 10, 10)
    assert line.move(11.0, 5, 4) == 11  # five of them were no arrivals: 6 left
    assert line.age_seconds(0, 11.0) < 1.0
    assert line.move(12.0, -5, 4) == 0
    assert line.age_seconds(0, 12.0) == pytest.approx(12.0 - 6.0)
    assert line.age_seconds(3, 12.0) == pytest.approx(12.0 - 9.0)
    assert line.move(13.0, 0, 0) == 0  # the four that were among the 11
    line.move(14.0, 3, 3)
    assert line.move(15.0, 0, 0) == 2  # the fifth is still to be


def test_a_correction_of_late_counters_is_no_other_epoch() -> None:
    before = SourceLook(waiting=3, claimed=0, arrived=10, ended=5, exact=False, late_counters=True)
    after = msgspec.structs.replace(before, arrived=8)
    moved = arrivals(before, after, None)
    assert moved == (-2, False, 0)
    assert arrivals(before, msgspec.structs.replace(after, late_counters=False), None) is None


def test_more_that_wait_than_are_known_to_have_come_came_just_now() -> None:
    line = ShadowLine(0.0, 2)
    assert line.move(10.0, 0, 5) == 0
    assert line.age_seconds(0, 10.0) == 10.0
    assert line.age_seconds(4, 10.0) < 10.0


# --- stuck --------------------------------------------------------------------------------------
def stuck_after(watch: StuckWatch, seconds: float, **changes: object) -> int:
    seen = {"waiting": 7, "claimed": 0, "moved": False, "idle_workers": 1} | changes
    watch.observe(**seen, now=0.0)
    watch.observe(**seen, now=0.5)
    return watch.observe(**seen, now=seconds + 0.5)


def test_what_no_idle_worker_takes_for_a_minute_is_stuck_until_something_moves() -> None:
    watch = StuckWatch()
    assert stuck_after(watch, STUCK_SECONDS - 1) == 0
    still = {"waiting": 7, "claimed": 0, "moved": False}
    assert watch.observe(**still, idle_workers=1, now=STUCK_SECONDS + 1) == 7
    assert watch.observe(**still, idle_workers=0, now=STUCK_SECONDS + 100) == 7
    assert watch.observe(**{**still, "waiting": 8}, idle_workers=0, now=STUCK_SECONDS + 101) == 0


def test_stuck_messages_count_again_after_pauses_that_grow() -> None:
    """A worker that seemed idle may have handled one: no message waits for ever."""
    watch, still = StuckWatch(), {"waiting": 7, "claimed": 0, "moved": False, "idle_workers": 1}
    seen = [watch.observe(**still, now=float(second)) for second in range(0, 4_000, 10)]
    changes = enumerate(pairwise(seen), 1)
    counted_again = [10 * nth for nth, (before, after) in changes if before > after]
    first = STUCK_SECONDS + FIRST_PAUSE_SECONDS
    assert counted_again[0] == pytest.approx(first, abs=10)
    assert counted_again[1] - counted_again[0] == pytest.approx(first + FIRST_PAUSE_SECONDS, abs=10)
    assert seen.count(7) > 300, "most of the time they ask for no workers"


def test_long_messages_are_not_stuck_within_a_minute() -> None:
    assert stuck_after(StuckWatch(runtime_seconds=300.0), 899.0) == 0
    assert stuck_after(StuckWatch(runtime_seconds=300.0), 900.0) == 7


@pytest.mark.parametrize(
    "changes", [{"claimed": 1}, {"moved": True}, {"idle_workers": 0}, {"waiting": 0}]
)
def test_nothing_is_stuck_while_work_goes_on_or_no_worker_is_idle(changes) -> None:
    assert stuck_after(StuckWatch(), 10 * STUCK_SECONDS, **changes) == 0


def test_unknown_claims_are_not_taken_for_none() -> None:
    assert stuck_after(StuckWatch(), 10 * STUCK_SECONDS, claimed=None, idle_workers=0) == 0
    assert stuck_after(StuckWatch(), 10 * STUCK_SECONDS, claimed=None) == 7


# --- values from outside ------------------------------------------------------------------------
@pytest.mark.parametrize(
    "values",
    [
        {"waiting": -1}, {"waiting": 1.5}, {"waiting": None}, {"waiting": True}, {"waiting": "9"},
        {"waiting": MOST_MESSAGES + 1}, {"claimed": -1}, {"oldest_seconds": nan},
        {"oldest_seconds": inf}, {"oldest_seconds": -1.0}, {"behind_seconds": None},
        {"epoch": "x" * 301},
    ],
    ids=str,
)  # fmt: skip
def test_figures_that_no_queue_can_have_are_a_fault(values) -> None:
    assert isinstance(checked(SourceLook(**{"waiting": 1, **values})), SourceFault)
