"""Days and hours as a time zone's clocks show them."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from typing import get_args

import msgspec

from penstock.decider.core.strategies.schedule import Day, zone

DAYS: tuple[Day, ...] = get_args(Day)


def clock(text: str) -> time:
    """``HH:MM``. Raises ValueError."""
    try:
        return time.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"expected a time of day like '22:00', found {text!r}") from error


class Today(msgspec.Struct, frozen=True):
    """The day that ``now`` falls on: its date, its first moment and that of the next, in POSIX
    seconds; 23 or 25 hours apart where clocks change."""

    date: str
    start: float
    end: float


def today(now: float, zone_name: str) -> Today:
    here = zone(zone_name)
    date = datetime.fromtimestamp(now, here).date()
    first, last = (
        datetime.combine(date + timedelta(days=days), time(), here).timestamp() for days in (0, 1)
    )
    return Today(date.isoformat(), first, last)


def within(now: float, start: time, end: time, days: tuple[Day, ...], zone_name: str) -> bool:
    """Whether a clock there shows a time from ``start`` to ``end``, over midnight if that comes
    first; ``days`` are those on which it starts. The same time twice is the whole day."""
    local = datetime.fromtimestamp(now, zone(zone_name))
    shown, day = local.time(), local.weekday()
    if start < end:
        return start <= shown < end and DAYS[day] in days
    if shown >= start:
        return DAYS[day] in days
    return shown < end and DAYS[day - 1] in days
