"""Jobs whose Spark session will be on a cluster: their tasks count before the cluster knows them.

A job that was dispatched is going to bring tasks, once a worker has taken it and it has opened its
session. A Spark Worker that starts meanwhile is there when they come.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from penstock.metrics.core.pool import PoolMeter

OPENING_SECONDS = 15.0
"""A session of a job's own takes 3 to 8 s to open; a job without one by then needs none."""


def jobs_to_come(
    existing: int,
    places: int,
    running_seconds: Sequence[float],
    app_seconds: Sequence[float],
    at_work: int = 0,
) -> int:
    """How many jobs are going to bring tasks that the cluster does not have yet.

    An application that is younger than a job may be that job's, and then it counts by its own
    tasks; each is taken for one job's only.

    Args:
        existing: jobs that wait or run.
        places: so many can run at a time.
        running_seconds: how long each has run of which no task was seen.
        app_seconds: how long each application is there.
        at_work: jobs of which tasks were seen.
    """
    apps = sorted(app_seconds, reverse=True)
    settled = at_work
    for seconds in sorted(running_seconds):
        is_there = bool(apps) and apps[-1] <= seconds
        if is_there:
            apps.pop()
        settled += is_there or seconds >= OPENING_SECONDS
    return max(min(existing, places) - settled, 0)


class Ahead:
    """The jobs of one pool, seen from the Spark pool that its sessions are on.

    Args:
        places: how many of its jobs can run at a time.
    """

    def __init__(self, meter: PoolMeter, places: int) -> None:
        self._meter, self._places = meter, places
        self._at_work: frozenset[str] = frozenset()

    def to_come(self, now: float, named: Collection[str], app_seconds: Sequence[float]) -> int:
        """As `jobs_to_come`.

        Args:
            named: jobs that applications say they work for now.
        """
        running = self._meter.workers.running_jobs(now)
        self._at_work = self._at_work.union(named).intersection(running)
        unseen = [seconds for job, seconds in running.items() if job not in self._at_work]
        return jobs_to_come(
            self._meter.existing, self._places, unseen, app_seconds, len(self._at_work)
        )
