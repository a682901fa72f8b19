"""Of many who wait, those whose time has come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from penstock.orchestrator.workflows import alarms
from penstock.orchestrator.workflows.alarms import Alarms, Name

START = datetime(2026, 11, 23, tzinfo=UTC)
NAMES = st.sampled_from([("graph", letter) for letter in "abcd"])
TIMES = st.none() | st.integers(0, 20)


@given(st.lists(st.tuples(NAMES, TIMES, st.integers(0, 3)), max_size=60))
def test_each_is_due_once_at_its_last_time(story: list[tuple[Name, int | None, int]]) -> None:
    waiting, now, times = Alarms(), 0, dict[Name, int]()
    for name, seconds, passed in story:
        at = None if seconds is None else START + timedelta(seconds=now + seconds)
        waiting.set(name, at)
        times.pop(name, None)
        if seconds is not None:
            times[name] = now + seconds
        now += passed
        due = {other for other, time in times.items() if time <= now}
        assert sorted(waiting.due(START + timedelta(seconds=now))) == sorted(due)
        times = {other: time for other, time in times.items() if other not in due}


def test_times_that_no_longer_hold_are_forgotten() -> None:
    waiting = Alarms()
    for number in range(10 * alarms._MOST_REPLACED):
        waiting.set(("graph", "a"), START + timedelta(seconds=number))
    assert len(waiting._heap) <= alarms._MOST_REPLACED + 3
    assert list(waiting.due(START + timedelta(days=1))) == [("graph", "a")]
