"""Upper quantiles of a forecast, from the errors that it made.

Each quantile of the error is followed by online gradient steps on its pinball loss: up by its share
after a miss, down by the rest after a hit. Whatever comes, it is exceeded as often as it says in
the long run (quantile tracking: Angelopoulos, Candès & Tibshirani, *Conformal PID Control*, 2023,
prop. 1; steps that shrink at first: Angelopoulos, Barber & Bates, *Online conformal prediction with
decaying step sizes*, 2024). Unlike adaptive conformal inference over a window (Gibbs & Candès 2021)
it keeps three numbers; on real arrivals it covered as well and lost less (`docs/benchmarks.md`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist

SHARES = (0.80, 0.95, 0.99)
_FIRST_STEP, _LEAST_STEP = 2.0, 0.1
"""In units of the usual error; the first shrinks with the square root of time."""
_SIZE_MEMORY = 100


class Calibration:
    """Upper quantiles of errors, in standard deviations of a Poisson count.

    Args:
        offsets: where to begin; those of a normal distribution are as good as any.
    """

    __slots__ = ("_learnt", "_offsets", "_size")

    def __init__(self, offsets: Sequence[float] = ()) -> None:
        self._offsets = list(offsets) or [NormalDist().inv_cdf(share) for share in SHARES]
        self._size, self._learnt = 1.0, 0

    def quantiles(self, mean_per_second: float, seconds: float) -> list[float]:
        """Rates that are exceeded with probability one less `SHARES`, over so many seconds."""
        spread = _deviation(mean_per_second, seconds)
        return sorted(max(mean_per_second + offset * spread, 0.0) for offset in self._offsets)

    def learn(self, mean_per_second: float, observed_per_second: float, seconds: float) -> None:
        """Learns from an observed rate."""
        error = (observed_per_second - mean_per_second) / _deviation(mean_per_second, seconds)
        self._learnt += 1
        # as if twenty errors of size 1 had been learnt before: the first few do not swing it
        self._size += (abs(error) - self._size) / min(self._learnt + 20, _SIZE_MEMORY)
        step = self._size * max(_FIRST_STEP / sqrt(self._learnt), _LEAST_STEP)
        for place, share in enumerate(SHARES):
            missed = error > self._offsets[place]
            self._offsets[place] += step * (missed - (1.0 - share))


def offsets(mean_per_second: float, quantiles: Sequence[float], seconds: float) -> list[float]:
    """The other way round: where a calibration stood that gave these quantiles."""
    spread = _deviation(mean_per_second, seconds)
    return [(rate - mean_per_second) / spread for rate in quantiles]


def loss(quantiles: Sequence[float], observed: float) -> float:
    """Pinball losses of the quantiles, summed (Koenker & Bassett 1978)."""
    return sum(
        share * (observed - rate) if observed >= rate else (1.0 - share) * (rate - observed)
        for share, rate in zip(SHARES, quantiles, strict=True)
    )


def _deviation(mean_per_second: float, seconds: float) -> float:
    """Standard deviation of a Poisson rate over so many seconds; at least of one arrival."""
    return sqrt(max(mean_per_second * seconds, 1.0)) / seconds
