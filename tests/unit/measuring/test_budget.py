"""The error budget: counts add up, time takes them away, a restart neither loses nor doubles."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock.measuring.budget import Ledger, late_in_line, pace

DAY = 86_400.0
MINUTE = 60.0
STARTED = some.lists(
    some.tuples(some.floats(0, 9000), some.integers(0, 500), some.floats(0, 1)), max_size=40
)


def ledger(quantile: float = 0.95, window: float = DAY) -> Ledger:
    return Ledger(30.0, quantile, window)


def filled(steps, found: Ledger | None = None) -> tuple[Ledger, float]:
    """Steps are (seconds since the last, jobs, share of them late)."""
    found, now = found or ledger(), 1e6
    for later, jobs, share in steps:
        now += later
        found.add(jobs, int(jobs * share), now)
    return found, now


def test_in_the_beginning_the_budget_is_full() -> None:
    found = ledger().budget(0, 0.0)
    assert (found.jobs, found.late, found.remaining_share) == (0, 0, 1.0)
    assert (found.burn_rate_short, found.burn_rate_long, pace(found)) == (0.0, 0.0, "")


def test_of_few_jobs_one_may_be_late() -> None:
    found = ledger()
    found.add(3, 1, 0.0)
    assert found.budget(0, 0.0).remaining_share == 0.0
    found.add(37, 0, 60.0)
    assert found.budget(0, 60.0).remaining_share == pytest.approx(0.5)


def test_jobs_that_wait_and_are_late_count_at_once() -> None:
    found = ledger()
    found.add(90, 0, 0.0)
    seen = found.budget(10, 0.0)
    assert seen.remaining_share == pytest.approx(1 - 10 / 5)
    assert (seen.late, seen.waiting_late) == (0, 10)
    assert seen.burn_rate_short == pytest.approx(2.0)


def test_just_as_many_late_as_allowed_burn_at_one() -> None:
    found, now = filled([(MINUTE, 100, 0.05)] * 1440)
    seen = found.budget(0, now)
    assert seen.remaining_share == pytest.approx(0.0, abs=0.01)
    assert seen.burn_rate_short == seen.burn_rate_long == pytest.approx(1.0)


def test_an_hour_of_trouble_burns_fast_and_stops_burning_when_it_is_over() -> None:
    found, now = filled([(MINUTE, 100, 0.0)] * 1380 + [(MINUTE, 100, 0.5)] * 50)
    assert pace(found.budget(0, now)) == "fast"
    found, now = filled([(MINUTE, 100, 0.0)] * 1380 + [(MINUTE, 100, 0.5)] * 50)
    for _ in range(6):
        now += MINUTE
        found.add(100, 0, now)
    assert found.budget(0, now).burn_rate_short == 0.0


def test_a_short_blip_does_not_burn() -> None:
    found, now = filled([(MINUTE, 100, 0.0)] * 60 + [(MINUTE, 100, 0.5)])
    assert pace(found.budget(0, now)) == ""


def test_what_is_older_than_the_window_is_forgiven() -> None:
    found = ledger()
    found.add(10, 10, 0.0)
    assert pace(found.budget(0, DAY - 2 * MINUTE)) == "spent"
    assert found.budget(0, DAY + MINUTE).remaining_share == 1.0


@given(STARTED)
def test_counts_add_up(steps) -> None:
    found, now = filled(steps)
    slots = [((1e6 + sum(s[0] for s in steps[: n + 1])) // MINUTE, s) for n, s in enumerate(steps)]
    recent = [step for slot, step in slots if slot > now // MINUTE - 1440]
    seen = found.budget(0, now)
    assert seen.jobs == sum(jobs for _, jobs, _ in recent)
    assert seen.late == sum(int(jobs * share) for _, jobs, share in recent)
    nested = [*(part[1:] for part in seen.parts), (seen.jobs, seen.late)]
    assert nested == sorted(nested)


@given(STARTED, some.integers(0, 100))
def test_a_restart_neither_loses_nor_doubles(steps, waiting) -> None:
    before, now = filled(steps)
    last, after = before.budget(waiting, now), ledger()
    after.remember(last, now + 5e5)  # another process, another steady clock
    assert after.budget(waiting, now + 5e5) == last


@given(STARTED)
def test_after_a_long_silence_nothing_stands(steps) -> None:
    before, now = filled(steps)
    after = ledger()
    after.remember(before.budget(0, now), now - DAY - MINUTE)
    assert after.budget(0, now).jobs == 0


def test_what_was_heard_while_remembering_is_not_lost() -> None:
    before, now = filled([(1.0, 100, 0.5)])
    after = ledger()
    after.add(10, 1, now + 120)
    after.remember(before.budget(0, now), now)
    assert after.budget(0, now + 120).jobs == 110


@given(some.lists(some.tuples(some.floats(), some.integers(), some.integers()), max_size=6))
def test_no_budget_of_a_stranger_can_break_it(parts) -> None:
    found = ledger()
    found.remember(msgspec.structs.replace(found.budget(0, 0.0), parts=tuple(parts)), 0.0)
    assert found.budget(0, 0.0).jobs >= 0


def test_counts_for_another_promise_are_not_taken_over() -> None:
    before, now = filled([(1.0, 100, 0.5)])
    after = Ledger(5.0, 0.95, DAY)
    after.remember(before.budget(0, now), now)
    assert after.budget(0, now).jobs == 0


@given(STARTED, some.sampled_from([0.25, 0.5, 8.0]))
def test_units_turned_round_give_the_same_budget(steps, scale) -> None:
    one, now = filled(steps)
    other = ledger(window=DAY * scale)
    at = 1e6
    for later, jobs, share in steps:
        at += later
        other.add(jobs, int(jobs * share), at * scale)
    found, scaled = one.budget(0, now), other.budget(0, now * scale)
    assert (scaled.jobs, scaled.late) == (found.jobs, found.late)
    assert scaled.remaining_share == found.remaining_share


class TestLateInLine:
    def test_each_age_is_a_job_where_there_are_as_many(self) -> None:
        assert late_in_line(3, (40.0, 31.0, 2.0), 30.0) == 2

    def test_between_two_places_it_is_where_the_line_crosses(self) -> None:
        assert late_in_line(101, (40.0, 20.0, 10.0, 5.0, 0.0), 30.0) == 13

    def test_of_one_age_only_that_job_is_known(self) -> None:
        assert late_in_line(100, (40.0,), 30.0) == 1

    def test_nothing_known_is_nothing_late(self) -> None:
        assert late_in_line(100, (), 30.0) == 0

    @given(some.integers(1, 1000), some.lists(some.floats(0, 100), max_size=5))
    def test_never_more_than_wait(self, waiting, ages) -> None:
        ages = tuple(sorted(ages, reverse=True)[:waiting])
        late = late_in_line(waiting, ages, 30.0)
        assert sum(age > 30 for age in ages) <= late <= waiting
