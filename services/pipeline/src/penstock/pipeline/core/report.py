"""The values of a report on a stretch of time, made from the lake's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.events.forecasting import ForecastMade
from penstock.measuring.calibration import SHARES
from penstock.pipeline.core.forecast import loss
from penstock.pipeline.core.seasons import Floats


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision near a bad moment; ``why``: its last reasons, as people read them."""

    id: str
    at: datetime
    current: int
    target: int
    strategy: str
    why: tuple[str, ...]


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """Minutes in which jobs started late.

    Attributes:
        started: jobs in them.
        late: of those.
        longest_seconds: from being due to the start.
    """

    at: datetime
    started: int
    late: int
    longest_seconds: float
    decisions: tuple[Decision, ...] = ()


class ForecastAccuracy(msgspec.Struct, frozen=True, kw_only=True):
    """The accuracy of published forecasts, compared with the arrivals.

    Attributes:
        steps: that are over.
        covered: shares of them that stayed below each quantile, by its name.
        relative_loss: quantile loss over that of the same quantiles of the whole stretch, which
            could only be computed afterwards; below 1 the forecast was better than those.
        expected_loss: as the last forecast published it, against seasonal-naive.
    """

    steps: int
    covered: Mapping[str, float]
    relative_loss: float | None
    expected_loss: float | None
    model: str


class Hour(msgspec.Struct, frozen=True, kw_only=True):
    """An hour of a pool; None where nothing is known."""

    at: datetime
    arrivals: int = 0
    started: int = 0
    late: int = 0
    workers: float | None = None


class PoolReport(msgspec.Struct, frozen=True, kw_only=True):
    """One pool.

    Attributes:
        kept: the share of jobs that started within ``sla_seconds`` is at least ``quantile``; None
            where no job started.
        worker_hours: that were ready, by the snapshots; None where there are none.
    """

    pool: str
    sla_seconds: float
    quantile: float
    started: int
    late: int
    p50_seconds: float | None
    p95_seconds: float | None
    longest_seconds: float | None
    failed: int
    worker_hours: float | None
    hours: tuple[Hour, ...] = ()
    worst: tuple[Moment, ...] = ()
    forecast: ForecastAccuracy | None = None

    @property
    def late_share(self) -> float:
        return self.late / max(self.started, 1)

    @property
    def kept(self) -> bool | None:
        return self.late_share <= 1 - self.quantile + 1e-9 if self.started else None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All pools over a stretch of time."""

    since: datetime
    until: datetime
    pools: tuple[PoolReport, ...]


def judge(
    forecasts: Sequence[ForecastMade], counts: Mapping[int, int], end: float
) -> ForecastAccuracy:
    """Forecasts of one pool against what came.

    Args:
        forecasts: in order; of several for one step the last one counts.
        counts: arrivals by minute since 1970; only steps of whole minutes are judged.
        end: POSIX seconds up to which is known what came.
    """
    last = forecasts[-1]
    predicted: dict[int, tuple[float, float, float]] = {}
    for made in forecasts:
        # of several forecasts for one step the last one counts
        predicted |= _predicted(made, end)
    step = round(last.step_seconds)
    minutes = max(step // 60, 1)
    steps = sorted(predicted)
    observed = np.array(
        [sum(counts.get(m, 0) for m in range(s, s + minutes)) for s in steps], float
    )
    upper = np.array([predicted[s] for s in steps], float).reshape(-1, len(SHARES)).T * step
    return ForecastAccuracy(
        steps=len(steps),
        covered={f"{s:.2f}": _share(observed <= row) for s, row in zip(SHARES, upper, strict=True)},
        relative_loss=_relative(upper, observed),
        expected_loss=last.relative_loss,
        model=last.model,
    )


def _predicted(made: ForecastMade, end: float) -> dict[int, tuple[float, float, float]]:
    """Upper rates by the minute in which their step begins, of the steps that are over."""
    upper = zip(made.p80_per_second, made.p95_per_second, made.p99_per_second, strict=True)
    start, step = made.starts_at.timestamp(), made.step_seconds
    return {
        int((start + number * step) // 60): rates
        for number, rates in enumerate(upper)
        if start + (number + 1) * step <= end
    }


def _share(hits: NDArray[np.bool_]) -> float:
    return float(hits.mean()) if len(hits) else 0.0


def _relative(upper: Floats, observed: Floats) -> float | None:
    if not len(observed):
        return None
    flat = np.repeat(np.quantile(observed, SHARES)[:, None], len(observed), axis=1)
    reference = loss(flat, observed)
    return loss(upper, observed) / reference if reference else None
