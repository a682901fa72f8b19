"""Models that follow a forecast made by the pipeline from weeks of the past."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from math import isnan, nan

from penstock.measuring.models import Stretch

TRAINED, TRAINED_CHANGE = "trained", "trained-change"


class Curve:
    """Arrivals per second over steps of one length; nothing is known before and after them.

    Args:
        start: of the first step, seconds of the caller's clock.
        step_seconds: of each step.
        rates: NaN where nothing is known.
    """

    __slots__ = ("_rates", "_start", "_step_seconds")

    def __init__(self, start: float, step_seconds: float, rates: Iterable[float]) -> None:
        self._start, self._step_seconds, self._rates = start, step_seconds, array("f", rates)

    def at(self, time: float) -> float | None:
        step = int((time - self._start) // self._step_seconds)
        rate = self._rates[step] if 0 <= step < len(self._rates) else nan
        return None if isnan(rate) else rate


class Trained:
    """The curve's rate at that time; None without a curve."""

    __slots__ = ("curve",)

    def __init__(self) -> None:
        self.curve: Curve | None = None

    def next(self, stretch: Stretch) -> float | None:
        return self.curve.at(stretch.ahead) if self.curve else None


class TrainedChange:
    """The level, changed as the curve changes: right where the day is busier than expected."""

    __slots__ = ("_trained",)

    def __init__(self, trained: Trained) -> None:
        self._trained = trained

    def next(self, stretch: Stretch) -> float | None:
        curve = self._trained.curve
        if curve is None:
            return None
        now, ahead = curve.at(stretch.at), curve.at(stretch.ahead)
        return None if now is None or ahead is None else max(stretch.level + ahead - now, 0.0)
