"""Forecasts made of the lake, with the errors of earlier forecasts."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from msgspec import Meta

from penstock.events.envelope import Codec, Instant, Int64
from penstock.events.scaling import PoolEvent

MOST_STEPS = 20_160
"""Two weeks of minutes."""
Rates = Annotated[
    tuple[Annotated[float, Meta(ge=0, lt=1e9)], ...], Meta(min_length=1, max_length=MOST_STEPS)
]


class ForecastMade(PoolEvent, frozen=True, kw_only=True, tag=True):
    """Arrivals of a pool over the next steps, from weeks of what was; quantiles, not points.

    The error is that of forecasts made in the same way earlier (rolling origin), over that of
    seasonal-naive, the better of *as yesterday* and *as a week ago*. Who decides by it weighs it
    against what is measured; with ``off`` it is worth no more than seasonal-naive.

    Attributes:
        model: the model with the least loss: ``harmonic``, ``mean-day``, ``mean-week`` or
            seasonal-naive itself.
        starts_at: when the first step begins.
        step_seconds: length of a step.
        mean_per_second: jobs a second, expected in each step.
        p80_per_second: jobs a second that one step in 5 exceeds.
        p95_per_second: jobs a second that one step in 20 exceeds.
        p99_per_second: jobs a second that one step in 100 exceeds.
        relative_loss: quantile loss over seasonal-naive's; None where it is not known yet.
        coverage: share of the steps that stayed below each quantile, by its name.
        origins: number of earlier forecasts that ``relative_loss`` and ``coverage`` were computed
            from.
        trained_since: first moment of the arrivals that the model learnt from.
        trained_until: last moment of these.
        off: why the forecast is not used; empty where it is.
    """

    model: str
    starts_at: Instant
    step_seconds: Annotated[float, Meta(ge=1, le=86_400)]
    mean_per_second: Rates
    p80_per_second: Rates
    p95_per_second: Rates
    p99_per_second: Rates
    relative_loss: float | None = None
    coverage: dict[str, float] = {}
    origins: Int64 = 0
    trained_since: Instant
    trained_until: Instant
    off: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError: as many of each quantile as there are steps."""
        upper = (self.p80_per_second, self.p95_per_second, self.p99_per_second)
        for one, other in pairwise((self.mean_per_second, *upper)):
            if len(one) != len(other):
                raise ValueError(f"{len(one)} steps of one figure, {len(other)} of another")


FORECAST_EVENTS = Codec(ForecastMade)
