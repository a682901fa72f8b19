"""Upper quantiles of Poisson counts: how many jobs may arrive."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_EXACT_BELOW = 50.0


def most_arrivals(mean: float, allowed_share: float) -> int:
    """The smallest count that is exceeded with no more than the allowed probability."""
    if mean <= 0:
        return 0
    if mean >= _EXACT_BELOW:
        z = normal_quantile(1.0 - allowed_share)
        return math.ceil(mean + z * math.sqrt(mean) + (z * z - 1) / 6)  # Cornish & Fisher 1937
    term = total = math.exp(-mean)
    count = 0
    while total < 1.0 - allowed_share and term > 0:
        count += 1
        term *= mean / count
        total += term
    return count


@lru_cache(maxsize=256)
def normal_quantile(share: float) -> float:
    """A quantile of the standard normal distribution."""
    return NormalDist().inv_cdf(share)
