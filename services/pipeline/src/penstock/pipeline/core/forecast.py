"""A pool's forecast: the model that lost least when it was asked earlier, with its own errors.

Rolling origin: each model forecasts the last days, one after the other, from what was known before
each; its quantiles then come from the errors of the days before. Errors are in standard deviations
of a Poisson count, as in `penstock.measuring.calibration`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from penstock.measuring.calibration import SHARES
from penstock.pipeline.core.days import DAY_SECONDS, Days, days
from penstock.pipeline.core.seasons import MODELS, REFERENCES, Floats, Model

LEAST_DAYS = 5
"""Two to learn from, one for the first errors, two to be judged by."""
_LEARNT_DAYS = 2
_SHARES = np.asarray(SHARES)[:, None]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a forecast.

    Attributes:
        step_seconds: a divisor of an hour.
        horizon_steps: how far ahead, at most a day.
        origins: earlier days that models are judged by, at most.
        zone: time zone of the days.
        special_days: dates as ``YYYY-MM-DD``, which are like Sundays.
    """

    step_seconds: int = 60
    horizon_steps: int = 1440
    origins: int = 7
    zone: str = "UTC"
    special_days: tuple[str, ...] = ()


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A forecast: counts of each step, ``upper`` by `SHARES`; the rest as `ForecastMade` has it."""

    model: str
    mean: Floats
    upper: Floats
    relative_loss: float | None = None
    coverage: dict[str, float] = {}
    origins: int = 0
    off: str = ""


class Trial(msgspec.Struct, frozen=True):
    """One model over the origins: its mean loss, the shares it covered, and its errors."""

    loss: float
    covered: Floats
    errors: Floats


def make_forecast(counts: Floats, start: float, plan: Plan) -> Made | None:
    """A forecast of the steps after ``counts``; None with less than two days of them.

    Args:
        counts: arrivals of each step, up to now.
        start: of the first, POSIX seconds.
    """
    per_day = DAY_SECONDS // plan.step_seconds
    if len(counts) < _LEARNT_DAYS * per_day:
        return None
    steps = len(counts)
    when = days(start, plan.step_seconds, steps + plan.horizon_steps, plan.zone, plan.special_days)
    ahead = when.between(steps, steps + plan.horizon_steps)
    origins = _origins(steps, per_day, plan)
    if len(origins) < LEAST_DAYS - _LEARNT_DAYS:
        return _untried(counts, when, ahead, steps // per_day)
    tried = {name: _try(model, counts, when, origins, plan) for name, model in MODELS.items()}
    best = min(tried, key=lambda name: tried[name].loss)
    reference = min(tried[name].loss for name in REFERENCES)
    mean = MODELS[best](counts, when.between(0, steps), ahead)
    return Made(
        model=best,
        mean=mean,
        upper=_upper(mean, _offsets([tried[best].errors])),
        relative_loss=tried[best].loss / reference if reference else None,
        coverage={f"{s:.2f}": float(c) for s, c in zip(SHARES, tried[best].covered, strict=True)},
        origins=len(origins) - 1,
        off=f"no model was better than {best}" if best in REFERENCES else "",
    )


def _origins(steps: int, per_day: int, plan: Plan) -> list[int]:
    """Whole days before the end, the first of them only for its errors."""
    last = steps - plan.horizon_steps
    origins = [last - back * per_day for back in range(plan.origins + 1)]
    return [origin for origin in reversed(origins) if origin >= _LEARNT_DAYS * per_day]


def _untried(counts: Floats, when: Days, ahead: Days, days_counted: int) -> Made:
    mean = MODELS["naive-day"](counts, when.between(0, len(counts)), ahead)
    return Made(
        model="naive-day",
        mean=mean,
        upper=_upper(mean, np.quantile([-1.0, 1.0], SHARES)),
        off=f"too few observations: {days_counted} of {LEAST_DAYS} days",
    )


def _try(model: Model, counts: Floats, when: Days, origins: Sequence[int], plan: Plan) -> Trial:
    errors: list[Floats] = []
    losses, covered = [], []
    for origin in origins:
        end = origin + plan.horizon_steps
        mean = model(counts[:origin], when.between(0, origin), when.between(origin, end))
        observed = counts[origin:end]
        # the first origin has no errors before it to make quantiles from
        if errors:
            upper = _upper(mean, _offsets(errors))
            losses.append(loss(upper, observed))
            covered.append((observed <= upper).mean(axis=1))
        errors.append((observed - mean) / _deviation(mean))
    return Trial(float(np.mean(losses)), np.mean(covered, axis=0), np.concatenate(errors))


def loss(upper: Floats, observed: Floats) -> float:
    """Pinball losses of the quantiles, summed, the mean over the steps (Koenker & Bassett)."""
    missed = observed - upper
    return float(np.maximum(_SHARES * missed, (_SHARES - 1.0) * missed).sum(axis=0).mean())


def _offsets(errors: Sequence[Floats]) -> Floats:
    return np.asarray(np.quantile(np.concatenate(errors), SHARES))


def _upper(mean: Floats, offsets: Floats) -> Floats:
    return np.asarray(np.maximum(mean + offsets[:, None] * _deviation(mean), 0.0))


def _deviation(mean: Floats) -> Floats:
    return np.asarray(np.sqrt(np.maximum(mean, 1.0)))
