"""`schedule`: hours, days, dates, time zones, and the two days a year when clocks change."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from tests.unit.decider.asking import demand, wanted
from tests.unit.decider.given import took

COPENHAGEN = {"time_zone": "Europe/Copenhagen"}


def posix(text: str, zone: str = "Europe/Copenhagen", fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def at(text: str, settings=None, **given) -> int:
    return wanted("schedule", {**COPENHAGEN, **(settings or {})}, now=posix(text), **given)


@pytest.mark.parametrize(
    ("when", "workers"),
    [
        ("2026-10-20 08:59:59", 6),  # a Tuesday
        ("2026-10-20 09:00:00", 8),
        ("2026-10-20 17:59:59", 8),
        ("2026-10-20 18:00:00", 6),
        ("2026-10-20 22:00:00", 2),
        ("2026-10-21 06:59:59", 2),
        ("2026-10-21 07:00:00", 6),
        ("2026-10-24 12:00:00", 2),  # a Saturday
        ("2026-10-25 23:59:59", 2),
        ("2026-10-26 00:00:00", 2),
        ("2026-10-26 09:00:00", 8),
    ],
)
def test_a_week_of_the_reference(when, workers):
    assert at(when) == workers


def test_the_pools_own_time_zone_counts():
    noon = posix("2026-10-20 12:00", "UTC")
    zones = {"UTC": 8, "Asia/Tokyo": 6, "America/Los_Angeles": 2}  # 12, 21 and 5 o'clock
    assert {zone: wanted("schedule", {"time_zone": zone}, now=noon) for zone in zones} == zones


class TestCalendars:
    holidays = {"workers": 1, "dates": ["2026-12-24", "2026-12-25"]}
    sale = {"workers": 40, "dates": ["2026-11-27", "2026-12-24"]}
    settings = {"calendars": {"holidays": holidays, "sale": sale}}

    def test_a_date_goes_before_hours_and_weekends(self):
        assert at("2026-12-25 12:00", self.settings) == 1
        assert at("2026-11-27 03:00", self.settings) == 40

    def test_of_two_calendars_the_one_with_more_workers(self):
        assert at("2026-12-24 12:00", self.settings) == 40

    def test_it_says_which(self):
        when = posix("2026-12-25 12:00")
        found = demand("schedule", {**COPENHAGEN, **self.settings}, now=when)
        assert found.reasons[-1].text == (
            "1 wanted by schedule: 2026-12-25 is in calendar holidays, "
            "at Friday 12:00 (Europe/Copenhagen)"
        )


class TestClocksChange:
    settings = {"off_peak_hours": [], "peak_hours": [2], "weekend": [], "weekday_workers": 1}

    def minutes_at_peak(self, day: str) -> int:
        """Minutes, of the 24 hours from midnight on."""
        start = posix(f"{day} 00:00")
        settings = {**COPENHAGEN, **self.settings}
        found = [wanted("schedule", settings, now=start + 60 * m) for m in range(0, 24 * 60, 15)]
        return sum(15 for workers in found if workers == 8)

    def test_an_hour_that_is_left_out_has_no_peak(self):
        assert self.minutes_at_peak("2026-03-29") == 0

    def test_an_hour_that_comes_twice_lasts_twice_as_long(self):
        assert self.minutes_at_peak("2026-10-25") == 120

    def test_nine_stays_nine(self):
        for day in ("2026-03-27", "2026-03-30", "2026-10-23", "2026-10-26"):
            assert (at(f"{day} 08:59"), at(f"{day} 09:00")) == (6, 8)


def test_workers_of_the_next_hour_are_asked_for_as_early_as_a_start_takes():
    assert at("2026-10-20 08:59:50", spawn=took(5)) == 6
    assert at("2026-10-20 08:59:50", spawn=took(10)) == 8
    assert at("2026-10-20 17:59:59", spawn=took(10)) == 8  # and none goes before its hour is over


def test_no_job_is_looked_at():
    assert at("2026-10-20 03:00", waiting=100_000, arrival_per_second=500) == 2
