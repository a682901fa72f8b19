"""Schedules as values: each tick once, whatever the clocks do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.jobs.errors import BadSchedule
from penstock.jobs.payloads import payload
from penstock.jobs.schedules.schedule import Schedule, check, dispatched, fired, next_tick, step

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
CALL = payload.Payload(
    id="", function="f", queue="q", arguments=msgspec.Raw(b"\x80"), dispatched_at=0.0
)


def schedule(cron: str = "*/10 * * * *", **fields: Any) -> Schedule:
    known: dict[str, Any] = {
        "name": "n", "cron": cron, "queue": "q", "function": "f", "payload": payload.encode(CALL),
        "generation": "g", "made_at": NOON, "done_until": NOON,
    }  # fmt: skip
    return Schedule(**{**known, **fields})


def minutes(count: float) -> datetime:
    return NOON + timedelta(minutes=count)


def test_nothing_before_the_first_tick() -> None:
    assert step(schedule(), minutes(9.99)) is None


def test_a_tick_in_time() -> None:
    found = step(schedule(), minutes(10.1))
    assert found is not None
    assert (found.firing, found.done_until) == (minutes(10), minutes(10))
    assert step(found, minutes(60)) is None, "one after the other"
    after = fired(found)
    assert (after.firing, after.last_tick, after.dispatched) == (None, minutes(10), 1)
    assert next_tick(after, after.done_until) == minutes(20)


def test_of_missed_ticks_the_latest_runs_once() -> None:
    found = step(schedule(), minutes(47))
    assert found is not None
    assert found.firing == minutes(40)


@pytest.mark.parametrize("missed", ["once", "skip"])
def test_of_ticks_a_moment_ago_none_is_missed(missed: Any) -> None:
    known, found = schedule("*/5 * * * * *", missed=missed), []
    while moved := step(known, NOON + timedelta(seconds=21)):
        found.append(moved.done_until)
        known = fired(moved)
    assert found == [NOON + timedelta(seconds=seconds) for seconds in (5, 10, 15, 20)]
    assert known.dispatched == 4


@pytest.mark.parametrize(("late", "fires"), [(0.2, True), (5, False)])
def test_or_none_does(late: float, fires: bool) -> None:
    found = step(schedule(missed="skip"), minutes(40 + late))
    assert found is not None
    assert (found.firing is not None) == fires
    assert found.done_until == minutes(40)


@pytest.mark.parametrize("fields", [{"paused": True}, {"removed": True}])
def test_one_that_rests(fields: dict[str, bool]) -> None:
    assert step(schedule(**fields), minutes(60)) is None


def test_a_clock_that_goes_back_repeats_nothing() -> None:
    found = step(schedule(), minutes(10.1))
    assert found is not None
    assert step(fired(found), minutes(5)) is None
    assert step(fired(found), minutes(10.2)) is None


berlin = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        (datetime(2026, 3, 29, tzinfo=berlin), [(3, 0)]),  # 2:30 does not come
        (datetime(2026, 10, 25, tzinfo=berlin), [(2, 30)]),  # 2:30 comes twice
    ],
)
def test_a_daily_tick_comes_once_when_clocks_change(
    day: datetime, expected: list[tuple[int, int]]
) -> None:
    found, at = [], day.astimezone(UTC)
    known = schedule("30 2 * * *", zone="Europe/Berlin", done_until=at, made_at=at)
    for _ in range(25 * 60):
        at += timedelta(minutes=1)
        if moved := step(known, at):
            assert moved.firing is not None
            local = moved.firing.astimezone(berlin)
            found.append((local.hour, local.minute))
            known = fired(moved)
        if at.astimezone(berlin).day != day.day:
            break
    assert found == expected


@given(
    st.sampled_from(["*/7 * * * *", "0 0 * * *", "*/20 * * * * *", "30 2 25 10 *", "5 4 * * SUN"]),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
    st.lists(st.floats(min_value=0.1, max_value=90_000), min_size=1, max_size=12),
)
def test_ticks_only_go_on_and_none_is_left_that_is_due(
    cron: str, zone: str, pauses: list[float]
) -> None:
    at = datetime(2026, 10, 24, 12, tzinfo=UTC)
    known = schedule(cron, zone=zone, done_until=at, made_at=at)
    for pause in pauses:
        at += timedelta(seconds=pause)
        while moved := step(known, at):
            assert known.done_until < moved.done_until <= at
            known = fired(moved)
        following = next_tick(known, known.done_until)
        assert following is None or following > at


def test_the_job_of_a_tick_is_the_same_whoever_makes_it() -> None:
    known = schedule(expires_seconds=60.0, tags=("a",))
    one = dispatched(known, NOON, "x", minutes(0.1))
    two = dispatched(known, NOON, "y", minutes(5))
    assert (one.id, one.job_id) == (two.id, two.job_id)
    assert one.tags == ("a", "schedule:n")
    ten = tuple(f"t{number}" for number in range(10))
    assert dispatched(schedule(tags=ten), NOON, "x", NOON).tags == ten
    assert one.expires_at == minutes(1)
    assert payload.decode(one.payload).id == one.job_id
    other = dispatched(known, minutes(10), "x", minutes(10))
    assert other.job_id != one.job_id
    replaced = dispatched(schedule(generation="h"), NOON, "x", NOON)
    assert replaced.job_id != one.job_id


@pytest.mark.parametrize("cron", ["", "* * * *", "61 * * * *", "* * * * * * *", "odd", "@daily"])
def test_what_is_no_expression(cron: str) -> None:
    with pytest.raises(BadSchedule, match="no cron expression"):
        check(cron, "UTC")


@pytest.mark.parametrize("zone", ["", "Mars/Olympus", "../../etc/passwd", "\x00"])
def test_what_is_no_zone(zone: str) -> None:
    with pytest.raises(BadSchedule, match="no time zone"):
        check("* * * * *", zone)


def test_words() -> None:
    assert "Monday" in check("30 6 * * MON-FRI", "UTC")
