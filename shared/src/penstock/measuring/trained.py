"""A forecast that somebody trained on weeks of the past, beside those that are made here."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from math import isnan, nan

from penstock.measuring.models import Stretch

TRAINED, TRAINED_CHANGE = "trained", "trained-change"


class Curve:
    """Arrivals per second over steps of one length; nothing is known before and after them.

    Args:
        start: of the first step, seconds of the clock by which it is asked.
        rates: not a number where nothing is known.
    """

    __slots__ = ("_rates", "_start", "_step_seconds")

    def __init__(self, start: float, step_seconds: float, rates: Iterable[float]) -> None:
        self._start, self._step_seconds, self._rates = start, step_seconds, array("f", rates)

    def at(self, time: float) -> float | None:
        step = int((time - self._start) // self._step_seconds)
        rate = self._rates[step] if 0 <= step < len(self._rates) else nan
        return None if isnan(rate) else rate


class Trained:
    """What the curve says of that time; nothing while there is none."""

    __slots__ = ("curve",)

    def __init__(self) -> None:
        self.curve: Curve | None = None

    def next(self, seen: Stretch) -> float | None:
        return self.curve.at(seen.ahead) if self.curve else None


class TrainedChange:
    """The level, changed as the curve changes: right where the day is busier than expected."""

    __slots__ = ("_trained",)

    def __init__(self, trained: Trained) -> None:
        self._trained = trained

    def next(self, seen: Stretch) -> float | None:
        curve = self._trained.curve
        if curve is None:
            return None
        now, ahead = curve.at(seen.at), curve.at(seen.ahead)
        return None if now is None or ahead is None else max(seen.level + ahead - now, 0.0)
