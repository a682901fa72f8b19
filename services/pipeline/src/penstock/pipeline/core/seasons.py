"""Models of a pool's arrivals by the clock: from counts that were to counts that are expected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from penstock.pipeline.core.days import Days, Integers

Floats = NDArray[np.float64]
Model = Callable[[Floats, Days, Days], Floats]
"""Counts, when they were, and when the wanted ones are; what it expects of each of these."""

_DAYS_HALVED = 3.0
_WEEKS_HALVED = 2.0
"""Days and weeks of so long ago weigh half in a mean."""
_DAILY, _WEEKLY = 12, 3
"""Harmonics: the shortest wave of a day is two hours long, of a week two days."""
_PENALTY = 1.0
_COARSE_SECONDS = 300
"""Waves of two hours need no finer counts than this, and fitting takes a fifth of the time."""


def naive_day(counts: Floats, then: Days, ahead: Days) -> Floats:
    """The counts of yesterday."""
    return _last(counts, then.of_day, then.per_day)[ahead.of_day]


def naive_week(counts: Floats, then: Days, ahead: Days) -> Floats:
    """The counts of the same weekday a week ago; without one, those of yesterday."""
    last = _last(counts, then.of_week, then.per_week)[ahead.of_week]
    return np.where(np.isnan(last), naive_day(counts, then, ahead), last)


def mean_day(counts: Floats, then: Days, ahead: Days) -> Floats:
    """The weighted mean of recent days."""
    weights = _weights(len(counts), _DAYS_HALVED * then.per_day)
    return _mean(counts, weights, then.of_day, then.per_day)[ahead.of_day]


def mean_week(counts: Floats, then: Days, ahead: Days) -> Floats:
    """The weighted mean of recent days of the same name; without any, of all days."""
    weights = _weights(len(counts), _WEEKS_HALVED * then.per_week)
    mean = _mean(counts, weights, then.of_week, then.per_week)[ahead.of_week]
    return np.where(np.isnan(mean), mean_day(counts, then, ahead), mean)


def harmonic(counts: Floats, then: Days, ahead: Days) -> Floats:
    """Sines and cosines of day and week, and weekends apart (dynamic harmonic regression, Hyndman
    & Athanasopoulos, *Forecasting: Principles and Practice*, 12.1, by ridge regression).

    Steps at the same place of the week have the same waves: their weighted mean stands for them.
    """
    group = max(1, _COARSE_SECONDS * then.per_day // 86_400)
    whole = len(counts) - len(counts) % group
    means = counts[:whole].reshape(-1, group).mean(axis=1)
    weights = _weights(len(means), _WEEKS_HALVED * then.per_week / group)
    places = then.of_week[group // 2 : whole : group]
    mean = _mean(means, weights, places, then.per_week)
    weight = np.bincount(places, weights, then.per_week)
    counted = np.flatnonzero(weight)
    waves = _waves(then.per_day, len(counts) >= 2 * then.per_week)
    fitted = Ridge(alpha=_PENALTY).fit(waves[counted], mean[counted], sample_weight=weight[counted])
    return np.asarray(np.maximum(fitted.predict(waves)[ahead.of_week], 0.0))


REFERENCES: Mapping[str, Model] = {"naive-day": naive_day, "naive-week": naive_week}
"""Seasonal-naive: what others have to beat."""
MODELS: Mapping[str, Model] = {
    "mean-day": mean_day,
    "mean-week": mean_week,
    "harmonic": harmonic,
    **REFERENCES,
}


def _last(counts: Floats, places: Integers, size: int) -> Floats:
    values = np.full(size, np.nan)
    values[places] = counts  # of several, the last one stays
    return values


def _mean(counts: Floats, weights: Floats, places: Integers, size: int) -> Floats:
    weight = np.bincount(places, weights, size)
    total = np.bincount(places, weights * counts, size)
    mean = np.divide(total, weight, out=np.full(size, np.nan), where=weight > 0)
    return np.asarray(mean)


def _weights(count: int, halved: float) -> Floats:
    return np.asarray(0.5 ** (np.arange(count)[::-1] / halved), dtype=np.float64)


@lru_cache(maxsize=2)
def _waves(per_day: int, weeks: bool) -> Floats:
    """A row for each step of a week."""
    of_week = np.arange(7 * per_day)
    turns = [2 * np.pi * k * of_week / per_day for k in range(1, _DAILY + 1)]
    waves = [wave(turn) for turn in turns for wave in (np.sin, np.cos)]
    if weeks:
        weekend = (of_week >= 5 * per_day).astype(float)
        waves += [weekend, *(weekend * wave for wave in waves)]
        turns = [2 * np.pi * k * of_week / (7 * per_day) for k in range(1, _WEEKLY + 1)]
        waves += [wave(turn) for turn in turns for wave in (np.sin, np.cos)]
    return np.column_stack(waves)
