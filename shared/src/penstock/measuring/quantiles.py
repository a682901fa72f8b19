"""Samples, summed up."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.events.snapshot import Quantiles

SERVICE_SAMPLES = 100
"""Run times of so many jobs stay known at least: the last one alone would be taken for all of them
when a queue that was empty fills again."""

SECONDS_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)
"""Upper bounds of the histograms that are shown; what is above the last one counts as more."""


def summary(ordered: Sequence[float], total: float, squares: float) -> Quantiles:
    """The summary of at least one sample.

    Args:
        ordered: seconds, the shortest first.
        total: their sum.
        squares: sum of their squares.
    """
    count = len(ordered)
    mean = total / count
    return Quantiles(
        count=count,
        mean_seconds=mean,
        p50_seconds=quantile(ordered, 0.5),
        p95_seconds=quantile(ordered, 0.95),
        p99_seconds=quantile(ordered, 0.99),
        cv2=cv2(count, mean, squares),
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value that at most this share of the samples lies below."""
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def cv2(count: int, mean: float, squares: float) -> float:
    """Squared coefficient of variation; 1 (exponential) where there are too few samples."""
    square = count * mean * mean  # 0 also where the mean is too small to be squared
    ratio = squares / square if count > 1 and square else 0.0
    return max(ratio - 1.0, 0.0) if ratio > 1 - 1e-6 else 1.0
