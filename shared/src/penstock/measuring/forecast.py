"""Forecasts of arrivals: several simple models, the one that loses least, or none.

Time is cut into stretches as long as the horizon. When one is over, each model is scored on its
prediction, by the pinball loss of its calibrated quantiles, and predicts the next one.
"""

from __future__ import annotations

from math import exp

from penstock.events.snapshot import Forecast
from penstock.measuring.calibration import Calibration, loss, offsets
from penstock.measuring.models import Model, Stretch, seasonal, smoothing
from penstock.measuring.rates import RateWindow
from penstock.measuring.trained import TRAINED, TRAINED_CHANGE, Curve, Trained, TrainedChange

LEVEL, SLOPE = "level", "slope"
_LEAST_HORIZON_SECONDS, _MOST_HORIZON_SECONDS = 5.0, 640.0
"""Over less than 5 s arrivals are noise; on no trace did any model beat the level there."""
_MEMORY_SECONDS = 3 * 3600.0
"""Losses of so long ago weigh a third."""
_LEAST_SCORED = 60
_SWITCH_ON, _SWITCH_OFF = 0.95, 1.0
"""Relative losses from which a forecast is used, and from which it is not any more."""
_WORTH_CHANGING = 0.98
_LONGEST_LOOK = 1.5
"""An observation longer than so many horizons is not split into stretches."""


class Candidate:
    """A model's standing: its calibration, its loss and the level's over the same stretches."""

    __slots__ = ("_calibration", "_level_loss", "_loss", "mean", "quantiles", "scored")

    def __init__(self, calibration: Calibration) -> None:
        self._calibration = calibration
        self._loss = self._level_loss = 0.0
        self.scored = 0
        self.mean: float | None = None
        self.quantiles: list[float] = []

    def predict(self, mean: float | None, seconds: float) -> None:
        """Sets the prediction for the next stretch."""
        self.mean = mean
        self.quantiles = [] if mean is None else self._calibration.quantiles(mean, seconds)

    def lost(self, observed: float) -> float:
        return loss(self.quantiles, observed)

    def score(self, observed: float, level_loss: float, seconds: float) -> None:
        """Scores the prediction of a stretch that is over."""
        if self.mean is None:
            return
        fading = exp(-seconds / _MEMORY_SECONDS)
        self._loss = fading * self._loss + self.lost(observed)
        self._level_loss = fading * self._level_loss + level_loss
        self._calibration.learn(self.mean, observed, seconds)
        self.scored += 1

    @property
    def relative_loss(self) -> float | None:
        """Its loss over the level's; None while too little is known of it."""
        if self.scored < _LEAST_SCORED or not self._level_loss:
            return None
        return self._loss / self._level_loss


class Forecaster:
    """One pool's arrivals. Times are seconds of one steady clock.

    Attributes:
        horizon_seconds: how far ahead it looks.
    """

    def __init__(self) -> None:
        self.horizon_seconds = _LEAST_HORIZON_SECONDS
        self._seasonal = seasonal()
        self._trained = Trained()
        self._trained_models: dict[str, Model] = {}
        self._offsets: list[float] = []
        self._end = self._made_at = 0.0
        self._count = 0
        self._chosen, self._best, self._awake = LEVEL, "", False
        self._begin_anew()

    def aim(self, needed_seconds: float) -> None:
        """At a horizon of at least this; what was learnt for a very different one is forgotten."""
        if self.horizon_seconds / 4 < needed_seconds <= self.horizon_seconds:
            return
        horizon = _LEAST_HORIZON_SECONDS
        while horizon < min(needed_seconds, _MOST_HORIZON_SECONDS):
            horizon *= 2
        if horizon != self.horizon_seconds:
            self.horizon_seconds, self._offsets = horizon, []
            self._begin_anew()

    def trust(self, curve: Curve | None) -> None:
        """A trained forecast stands for election beside the simple models; None: no more."""
        self._trained.curve = curve
        if curve is None or self._trained_models:
            return
        change = TrainedChange(self._trained)
        self._trained_models = {TRAINED: self._trained, TRAINED_CHANGE: change}
        for name in self._trained_models:
            self._candidates[name] = Candidate(Calibration(self._offsets))

    def add(self, start: float, end: float, count: int, rates: RateWindow) -> None:
        """``count`` arrivals came in (start, end], and `rates` knows of them.

        Where something is missing in between, or it was seen from afar, that stretch is left out.
        """
        if end - start > _LONGEST_LOOK * self.horizon_seconds:
            self._start = None
            return
        if self._start is None or start != self._end:
            self._start, self._count = start, 0
            self._forget_predictions()
        self._count, self._end = self._count + count, end
        if end - self._start >= self.horizon_seconds - 1e-6:
            self._close(self._start, end, rates)
            self._start, self._count = end, 0

    def forecast(self, now: float) -> Forecast | None:
        """None before the first arrival."""
        knows = self._candidates[self._chosen].mean is not None
        name = self._chosen if knows else LEVEL
        candidate = self._candidates[name]
        if candidate.mean is None:
            return None
        p80, p95, p99 = candidate.quantiles
        return Forecast(
            model=name,
            horizon_seconds=self.horizon_seconds,
            mean_per_second=candidate.mean,
            p80_per_second=p80,
            p95_per_second=p95,
            p99_per_second=p99,
            relative_loss=self._candidates[self._best].relative_loss if self._best else None,
            off="" if name != LEVEL else self._why_off(),
            age_seconds=max(now - self._made_at, 0.0),
        )

    def remember(self, last: Forecast | None) -> None:
        """Starts every model from the forecast errors of an earlier process."""
        if last is None:
            return
        self.aim(last.horizon_seconds)
        upper = (last.p80_per_second, last.p95_per_second, last.p99_per_second)
        self._offsets = offsets(last.mean_per_second, upper, self.horizon_seconds)
        self._begin_anew()

    # --- a stretch is over -----------------------------------------------------------------------
    def _close(self, start: float, end: float, rates: RateWindow) -> None:
        # before the first arrival every model would be right, and none would have learnt anything
        self._awake = self._awake or self._count > 0
        if not self._awake:
            return
        observed = self._count / (end - start)
        self._score(observed, end - start)
        self._choose()
        self._made_at = end
        rate = rates.rate(self.horizon_seconds)
        level = rate.per_second if rate else observed
        self._predict(LEVEL, level)
        self._predict(SLOPE, (rate.forecast_per_second if rate else None) or level)
        stretch = Stretch(observed, level, (start + end) / 2, end + self.horizon_seconds / 2)
        for models in (self._smoothing, self._seasonal, self._trained_models):
            for name, model in models.items():
                self._predict(name, model.next(stretch))

    def _predict(self, name: str, mean: float | None) -> None:
        self._candidates[name].predict(mean, self.horizon_seconds)

    def _score(self, observed: float, seconds: float) -> None:
        level = self._candidates[LEVEL]
        if level.mean is None:
            return
        level_loss = level.lost(observed)
        for candidate in self._candidates.values():
            candidate.score(observed, level_loss, seconds)

    def _choose(self) -> None:
        """The best that is clearly better than the level; the present one while it is not worse."""
        losses = {
            name: relative
            for name, candidate in self._candidates.items()
            if name != LEVEL and (relative := candidate.relative_loss) is not None
        }
        self._best = best = min(losses, key=losses.__getitem__, default="")
        present = losses.get(self._chosen)
        if present is not None and present <= _SWITCH_OFF:
            if losses[best] < _WORTH_CHANGING * present:
                self._chosen = best
        else:
            self._chosen = best if best and losses[best] < _SWITCH_ON else LEVEL
        self._best = self._best if self._chosen == LEVEL else self._chosen

    def _why_off(self) -> str:
        if self._chosen != LEVEL:
            return f"{self._chosen} has no observation of this time of its period yet"
        if self._best:
            lost = self._candidates[self._best].relative_loss or 0.0
            return f"the best, {self._best}, loses {lost:.2f} times what the level loses"
        scored = self._candidates[LEVEL].scored
        return f"too few observations: {scored} of {_LEAST_SCORED} stretches"

    def _begin_anew(self) -> None:
        """For stretches of another length, or from other offsets; seasons are kept."""
        self._smoothing = smoothing()
        names = (LEVEL, SLOPE, *self._smoothing, *self._seasonal, *self._trained_models)
        self._candidates = {name: Candidate(Calibration(self._offsets)) for name in names}
        self._chosen, self._best, self._awake = LEVEL, "", False
        self._start = None

    def _forget_predictions(self) -> None:
        for candidate in self._candidates.values():
            candidate.predict(None, self.horizon_seconds)
