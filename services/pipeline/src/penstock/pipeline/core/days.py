"""Steps of time as people's clocks and calendars name them."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

Integers = NDArray[np.intp]
DAY_SECONDS = 86_400
SPECIAL = 6
"""A special day is like a Sunday."""


class Days(msgspec.Struct, frozen=True, kw_only=True):
    """The places of consecutive steps in their day and week.

    Attributes:
        per_day: steps of a day.
        per_week: of a week.
        of_day: step of the local day, 0 to ``per_day - 1``.
        of_week: step of the week that the day is like: a special day's are a Sunday's.
    """

    per_day: int
    of_day: Integers
    of_week: Integers

    @property
    def per_week(self) -> int:
        return 7 * self.per_day

    def between(self, start: int, end: int) -> Days:
        """Some of the steps."""
        return Days(
            per_day=self.per_day, of_day=self.of_day[start:end], of_week=self.of_week[start:end]
        )


def days(
    start: float, step_seconds: int, count: int, zone: str = "UTC", special: Collection[str] = ()
) -> Days:
    """Of ``count`` steps.

    Args:
        start: of the first, POSIX seconds.
        step_seconds: a divisor of an hour.
        special: dates, ``YYYY-MM-DD``, on which the week is not as usual.
    """
    return _days(start, step_seconds, count, zone, tuple(special))


@lru_cache(maxsize=4)  # many pools share the same stretch of time
def _days(start: float, step_seconds: int, count: int, zone: str, special: tuple[str, ...]) -> Days:
    seconds = np.arange(count, dtype=np.int64) * step_seconds + int(start)
    local = pd.to_datetime(seconds, unit="s", utc=True).tz_convert(ZoneInfo(zone))
    of_day = np.asarray(local.hour * 3600 + local.minute * 60 + local.second) // step_seconds
    dates = pd.DatetimeIndex([pd.Timestamp(date) for date in special])
    is_special = local.tz_localize(None).normalize().isin(dates)
    kinds = np.where(is_special, SPECIAL, np.asarray(local.day_of_week))
    per_day = DAY_SECONDS // step_seconds
    return Days(per_day=per_day, of_day=of_day, of_week=kinds * per_day + of_day)
