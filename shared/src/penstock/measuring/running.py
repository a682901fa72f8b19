"""Running jobs as samples of the service time."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.events.snapshot import Quantiles

_WORTH_NOTING_SECONDS = 1.0


def with_running(finished: Quantiles | None, running_seconds: Sequence[float]) -> Quantiles | None:
    """Service time with the running jobs counted as "at least this long".

    A running job counts once it is older than the mean: then it is a sample of its age. While no
    job has finished, running jobs older than a second are the only samples.
    """
    least = _WORTH_NOTING_SECONDS if finished is None else finished.mean_seconds
    longer = sorted(age for age in running_seconds if age > least)
    if not longer:
        return finished
    if finished is None:
        return _of_running(longer)
    count = finished.count + len(longer)
    return Quantiles(
        count=count,
        mean_seconds=(finished.mean_seconds * finished.count + sum(longer)) / count,
        p50_seconds=finished.p50_seconds,
        p95_seconds=finished.p95_seconds,
        p99_seconds=max(finished.p99_seconds, longer[-1]),
        cv2=finished.cv2,
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
