"""Running jobs as samples of the service time."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.events.snapshot import Quantiles

_WORTH_NOTING_SECONDS = 1.0


def with_running(known: Quantiles | None, running_seconds: Sequence[float]) -> Quantiles | None:
    """Service time with the running jobs counted as "at least this long".

    A running job says something only once it is older than the mean: then it is a sample of its
    age. While nothing has finished, jobs older than a second are all there is to know.
    """
    least = _WORTH_NOTING_SECONDS if known is None else known.mean_seconds
    longer = sorted(age for age in running_seconds if age > least)
    if not longer:
        return known
    if known is None:
        return _of_running(longer)
    count = known.count + len(longer)
    return Quantiles(
        count=count,
        mean_seconds=(known.mean_seconds * known.count + sum(longer)) / count,
        p50_seconds=known.p50_seconds,
        p95_seconds=known.p95_seconds,
        p99_seconds=max(known.p99_seconds, longer[-1]),
        cv2=known.cv2,
        age_seconds=0.0,
    )


def _of_running(ages: Sequence[float]) -> Quantiles:
    return Quantiles(
        count=len(ages),
        mean_seconds=sum(ages) / len(ages),
        p50_seconds=ages[(len(ages) - 1) // 2],
        p95_seconds=ages[-1],
        p99_seconds=ages[-1],
        age_seconds=0.0,
    )
