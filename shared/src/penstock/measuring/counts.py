"""What a count says of the rate behind it."""

from __future__ import annotations

from math import sqrt


def least_expected(count: float) -> float:
    """The least number that was to be expected where ``count`` came, but for one time in 44.

    The square root of a Poisson count has a spread of a half, whatever its mean (Bartlett, *The
    square root transformation in analysis of variance*, 1936); two of these are taken off.
    """
    return max(sqrt(count) - 1.0, 0.0) ** 2
