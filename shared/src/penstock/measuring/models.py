"""Simple models of an arrival rate: what the next stretch will bring, from those that were.

Stretches are all about as long. The level itself, and its slope, come from `rates.RateWindow`.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from math import isnan, nan
from typing import NamedTuple, Protocol

DAY_SECONDS = 86_400.0


class Stretch(NamedTuple):
    """The last observation.

    Attributes:
        per_second: its rate.
        level: the rate that is thought to hold now.
        at: its middle, seconds of a steady clock.
        ahead: the middle of the stretch asked for.
    """

    per_second: float
    level: float
    at: float
    ahead: float


class Model(Protocol):
    """Sees each stretch once, in order."""

    def next(self, stretch: Stretch) -> float | None:
        """Arrivals per second over the next stretch; None while there are too few observations."""
        ...


class Holt:
    """Exponential smoothing of level and trend, the trend damped (Holt 1957; Gardner & McKenzie
    1985); without trend it is simple exponential smoothing.

    Args:
        level: weight of the newest level.
        trend: weight of the newest trend.
        damping: share of the trend that is left after each stretch.
    """

    __slots__ = ("_damping", "_level", "_level_weight", "_trend", "_trend_weight")

    def __init__(self, level: float, trend: float = 0.0, damping: float = 1.0) -> None:
        self._level_weight, self._trend_weight, self._damping = level, trend, damping
        self._level: float | None = None
        self._trend = 0.0

    def next(self, stretch: Stretch) -> float:
        if self._level is None:
            self._level = stretch.per_second
        expected, trend = self._level + self._damping * self._trend, self._damping * self._trend
        before, weight = self._level, self._level_weight
        self._level = expected + weight * (stretch.per_second - expected)
        self._trend = trend + self._trend_weight * (self._level - before - trend)
        return max(self._level + self._damping * self._trend, 0.0)


class Seasonal:
    """The level, changed by as much as it changed here in earlier periods (a seasonal-naive
    forecast of the change): what comes by the clock, each day or week, is known beforehand.

    Args:
        period_seconds: after which it comes again.
        slots: the period is kept in so many.
    """

    __slots__ = ("_count", "_rates", "_slot", "_slot_seconds", "_slots", "_sum")

    def __init__(self, period_seconds: float, slots: int) -> None:
        self._slots, self._slot_seconds = slots, period_seconds / slots
        self._rates: array[float] = array("f")
        self._slot, self._sum, self._count = -1, 0.0, 0

    def next(self, stretch: Stretch) -> float | None:
        self._learn(stretch)
        if not self._rates:
            return None
        change = self._usual(stretch.ahead) - self._usual(stretch.at)
        return None if isnan(change) else max(stretch.level + change, 0.0)

    def usual(self, at: float) -> float | None:
        """The rate at this time of earlier periods; None where none is known."""
        rate = self._usual(at) if self._rates else nan
        return None if isnan(rate) else rate

    def _usual(self, at: float) -> float:
        return self._rates[int(at // self._slot_seconds) % self._slots]

    def _learn(self, stretch: Stretch) -> None:
        slot = int(stretch.at // self._slot_seconds)
        if slot != self._slot:
            self._keep()
            self._slot, self._sum, self._count = slot, 0.0, 0
        self._sum += stretch.per_second
        self._count += 1

    def _keep(self) -> None:
        """The slot is over; nothing is allocated for a pool that never had an arrival."""
        if not self._count or not (self._sum or self._rates):
            return
        if not self._rates:
            self._rates = array("f", [nan]) * self._slots
        mean, place = self._sum / self._count, self._slot % self._slots
        before = self._rates[place]
        self._rates[place] = mean if isnan(before) else (before + mean) / 2


class SameTime:
    """The rate at this time of earlier periods: the seasonal-naive forecast."""

    __slots__ = ("_seasonal",)

    def __init__(self, seasonal: Seasonal) -> None:
        self._seasonal = seasonal

    def next(self, stretch: Stretch) -> float | None:
        return self._seasonal.usual(stretch.ahead)


def smoothing() -> Mapping[str, Model]:
    """Fresh ones, for stretches of a new length."""
    return {
        "smooth-0.05": Holt(0.05),
        "smooth-0.2": Holt(0.2),
        "smooth-0.5": Holt(0.5),
        "holt-0.1": Holt(0.1, 0.05, 0.9),
        "holt-0.3": Holt(0.3, 0.1, 0.9),
    }


def seasonal() -> Mapping[str, Model]:
    """14 kB once there are arrivals. In this order: the plain ones look into the others."""
    daily, weekly = Seasonal(DAY_SECONDS, 1440), Seasonal(7 * DAY_SECONDS, 2016)
    return {
        "daily": daily,
        "weekly": weekly,
        "daily-naive": SameTime(daily),
        "weekly-naive": SameTime(weekly),
    }
