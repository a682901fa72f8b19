"""Strategy `schedule`: so many workers by the hour, the day of the week and the date.

The first that holds, in the pool's own time zone:

    1. a calendar that has the date (of several the one with most workers)
    2. the weekend
    3. on other days a peak or an off-peak hour
    4. any other hour of such a day

Workers for the next hour are asked for as early as starting one takes. Hours are those of the wall
clock: where clocks are put back an hour lasts twice as long, where they are put forward one is left
out.

Choose it where the load follows the clock and the numbers are known, or where workers are hired by
the hour. Take `keep-busy` out of `policies` where the number is a ceiling too: while a backlog
lasts every worker is busy, and none would go.

Weakness: it ignores the queue. A queue that overflows at night stays full until the morning.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from msgspec import Meta

from penstock.config.section import Count, Section
from penstock.decider.core.strategy import Demand, StrategyInputs, ask

Hour = Annotated[int, Meta(ge=0, le=23)]
Day = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_WEEK: tuple[Day, ...] = Day.__args__  # type: ignore[attr-defined]


class Calendar(Section, frozen=True, kw_only=True):
    """Dates that are unlike others.

    Attributes:
        workers: all day long on each of them.
        dates: like ``2026-12-24``.
    """

    workers: Count
    dates: tuple[date, ...]


class Options(Section, frozen=True, kw_only=True):
    """Settings.

    Attributes:
        time_zone: an IANA name, like ``Europe/Copenhagen``.
        peak_hours: of the day: 9 is from 9:00 to 9:59.
        off_peak_hours: of the day: 9 is from 9:00 to 9:59.
        peak_workers: in those hours.
        off_peak_workers: in those hours.
        weekday_workers: in all other hours of those days.
        weekend: the days on which hours do not count; may be empty.
        weekend_workers: all day long on those.
        calendars: dates with a number of their own, by a name of your choice.
    """

    time_zone: str = "UTC"
    peak_hours: tuple[Hour, ...] = tuple(range(9, 18))
    peak_workers: Count = 8
    off_peak_hours: tuple[Hour, ...] = (22, 23, *range(7))
    off_peak_workers: Count = 2
    weekday_workers: Count = 6
    weekend: tuple[Day, ...] = ("saturday", "sunday")
    weekend_workers: Count = 2
    calendars: dict[str, Calendar] = {}

    def __post_init__(self) -> None:
        super().__post_init__()
        zone(self.time_zone)
        if both := sorted({*self.peak_hours} & {*self.off_peak_hours}):
            raise ValueError(f"found hour {both[0]} in peak_hours and in off_peak_hours")


class Schedule:
    """See the module."""

    name = "schedule"
    options = Options

    def demand(self, inputs: StrategyInputs) -> Demand:
        spawn = inputs.snapshot.spawn
        ahead = spawn.p95_seconds if spawn else 0.0
        now, then = (_local(inputs.options, inputs.now + seconds) for seconds in (0.0, ahead))
        workers, why = max(planned(inputs.options, moment) for moment in (now, then))
        return ask(self.name, workers, f"{why}, at {now:%A %H:%M} ({inputs.options.time_zone})")


def planned(options: Options, local: datetime) -> tuple[int, str]:
    """Workers at a local time, and why."""
    calendars = options.calendars.items()
    days = [(days.workers, name) for name, days in calendars if local.date() in days.dates]
    if days:
        workers, name = max(days)
        return workers, f"{local.date()} is in calendar {name}"
    if _WEEK[local.weekday()] in options.weekend:
        return options.weekend_workers, "it is the weekend"
    if local.hour in options.peak_hours:
        return options.peak_workers, f"{local.hour} is a peak hour"
    if local.hour in options.off_peak_hours:
        return options.off_peak_workers, f"{local.hour} is an off-peak hour"
    return options.weekday_workers, f"{local.hour} is an hour like any other"


def zone(name: str) -> ZoneInfo:
    """A time zone. Raises ValueError."""
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"found time_zone {name!r}, expected an IANA name, like Europe/Copenhagen"
        ) from error


def _local(options: Options, posix_seconds: float) -> datetime:
    return datetime.fromtimestamp(posix_seconds, zone(options.time_zone))
