"""How much better than no forecast the forecaster does, and how well its quantiles cover.

Traces are read in place and thinned to a stated rate; counts per second are fed to the production
code as the metrics service does. Rivals over the same stretches, each with the same calibration:
`level` (the rate goes on as it is), `naive` (as in the same minute of yesterday), and `poisson`
(the level with the quantiles of a Poisson process: no calibration). Losses are pinball losses of
the 80 %, 95 % and 99 % quantiles, summed, over those of `level`.

    benchmarks/forecast.py [TRACE.csv …] [--horizon 5,20,80] [--rate 5] [--hours 168]
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from machine import describe
from penstock.decider.simulator.model import durations, load, traces
from penstock.measuring.calibration import SHARES, Calibration, loss
from penstock.measuring.forecast import Forecaster
from penstock.measuring.models import DAY_SECONDS
from penstock.measuring.rates import RateWindow

FOUND = Path(__file__).resolve().parents[2] / "shared" / "traces"
WINDOW_SECONDS = 60.0


class Rival:
    """A mean that is said beforehand, with calibrated quantiles or a Poisson process's."""

    def __init__(self, *, learns: bool = True) -> None:
        self._calibration, self._learns = Calibration(), learns
        self.mean: float | None = None
        self.upper: list[float] = []

    def predict(self, mean: float | None, seconds: float) -> None:
        self.mean = mean
        self.upper = [] if mean is None else self._calibration.quantiles(mean, seconds)

    def learn(self, found: float, seconds: float) -> None:
        if self._learns and self.mean is not None:
            self._calibration.learn(self.mean, found, seconds)


class Tally:
    """Losses and hits of one forecast, and the level's losses over the same stretches."""

    def __init__(self) -> None:
        self.loss = self.level_loss = 0.0
        self.hits = [0] * len(SHARES)
        self.stretches = 0

    def add(self, upper: Sequence[float], found: float, level_loss: float) -> None:
        self.loss += loss(upper, found)
        self.level_loss += level_loss
        self.hits = [hits + (found <= each) for hits, each in zip(self.hits, upper, strict=True)]
        self.stretches += 1

    def summary(self) -> dict[str, Any]:
        return {
            "relative_loss": round(self.loss / self.level_loss, 4) if self.level_loss else None,
            "coverage": {
                f"{share:.2f}": round(hits / max(self.stretches, 1), 4)
                for share, hits in zip(SHARES, self.hits, strict=True)
            },
            "stretches": self.stretches,
        }


def evaluate(counts: Sequence[int], horizon: float) -> dict[str, Any]:
    """One trace at one horizon; counts are arrivals of each second."""
    forecaster, rates = Forecaster(), RateWindow(WINDOW_SECONDS, 1.0)
    forecaster.aim(horizon)
    step = int(forecaster.horizon_seconds)
    rivals = {"level": Rival(), "naive": Rival(), "poisson": Rival(learns=False)}
    tallies = {name: Tally() for name in ("forecast", *rivals)}
    models: Counter[str] = Counter()
    said: list[float] = []
    took = 0.0
    for second, count in enumerate(counts):
        rates.add(second, second + 1, count)
        began = time.perf_counter()
        forecaster.add(second, second + 1, count, rates)
        took += time.perf_counter() - began
        if (second + 1) % step:
            continue
        found = sum(counts[second + 1 - step : second + 1]) / step
        if said:
            level_loss = loss(rivals["level"].upper, found)
            tallies["forecast"].add(said, found, level_loss)
            for name, rival in rivals.items():
                if rival.mean is not None:
                    tallies[name].add(rival.upper, found, level_loss)
                rival.learn(found, step)
        forecast = forecaster.forecast(second + 1)
        if forecast is None:
            continue
        models[forecast.model] += 1
        said = [forecast.p80_per_second, forecast.p95_per_second, forecast.p99_per_second]
        level = rates.rate(step)
        for name in ("level", "poisson"):
            rivals[name].predict(level.per_second if level else None, step)
        rivals["naive"].predict(_yesterday(counts, second + 1, step), step)
    return {
        **{name: tally.summary() for name, tally in tallies.items()},
        "models": {name: round(n / models.total(), 3) for name, n in models.most_common()},
        "microseconds_a_second": round(took / len(counts) * 1e6, 1),
    }


def _yesterday(counts: Sequence[int], now: int, step: int) -> float | None:
    """The mean of the minutes, a day ago, in which the stretch that begins now lies."""
    start = (now - int(DAY_SECONDS)) // 60 * 60
    end = start + max(60, -(-step // 60) * 60)
    return sum(counts[start:end]) / (end - start) if start >= 0 else None


def series(options: argparse.Namespace) -> Iterator[tuple[str, float, list[int]]]:
    """Name, thinning and arrivals of each second, of every trace and of one that is made up."""
    for path in options.paths or sorted(FOUND.glob("*.csv")):
        trace = load.cut(traces.read(path), 0.0, options.hours * 3600)
        share = min(options.rate * trace.duration_seconds / trace.arrivals, 1.0)
        drawn = load.draw(trace, durations.parse("lognormal:1,1"), thin=share, seed=options.seed)
        seconds = np.arange(int(drawn.duration_seconds) + 1)
        yield path.stem, share, np.histogram(drawn.arrivals, bins=seconds)[0].tolist()
    yield "scheduled (made up)", 1.0, _scheduled(options.rate, options.seed)


def _scheduled(rate: float, seed: int) -> list[int]:
    """Four days: a trickle, three minutes of ten times the rate each hour, and a busy ten at 9."""
    minute = np.arange(4 * 86_400) // 60
    hourly, nightly = minute % 60 < 3, (minute % 1440 >= 540) & (minute % 1440 < 550)
    rates = rate / 5 + 10 * rate * hourly + 5 * rate * nightly
    return np.random.default_rng(seed).poisson(rates).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--horizon", default="5,20,80", help="seconds, with commas between them")
    parser.add_argument("--rate", type=float, default=5.0, help="arrivals a second, about")
    parser.add_argument("--hours", type=float, default=168.0, help="the first so many")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows = [
        {"trace": name, "thin": round(share, 5), "horizon_seconds": float(horizon)}
        | {"mean_per_second": round(sum(counts) / len(counts), 3)}
        | evaluate(counts, float(horizon))
        for name, share, counts in series(options)
        for horizon in options.horizon.split(",")
    ]
    print(json.dumps({"benchmark": "forecast", "machine": describe(), "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
