"""The figures of a pool: how the promise was kept, and what it cost. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
from examples.demonstration.recording import Recording, WorkerLife

from penstock.config import Pool


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One pool, over the whole run.

    Attributes:
        late: jobs that started later than promised, or never.
        pickups: seconds, ascending, of the jobs that started.
        peak_workers: most processes at a time.
        worker_seconds: all workers' lives together, starting and draining included.
        fixed_worker_seconds: those of a fleet that always has the peak.
    """

    pool: str
    sla_seconds: float
    quantile: float
    jobs: int
    late: int
    pickups: tuple[float, ...]
    peak_workers: int
    worker_seconds: float
    fixed_worker_seconds: float

    @property
    def late_share(self) -> float:
        return self.late / self.jobs if self.jobs else 0.0

    @property
    def kept(self) -> bool:
        """The promise: no more than the allowed share of jobs started late."""
        return self.late_share <= 1 - self.quantile + 1e-9

    @property
    def saved_share(self) -> float:
        """The share of a fixed fleet's worker-seconds that was saved."""
        fixed = self.fixed_worker_seconds
        return 1 - self.worker_seconds / fixed if fixed else 0.0


def figures(recording: Recording, pool: Pool, begins: float, ends: float) -> Figures:
    """A pool's figures between two POSIX seconds; its jobs are counted whenever they came."""
    stories, sla = recording.jobs_of(pool.name), pool.profile.sla_seconds
    pickups = sorted(p for story in stories if (p := story.pickup_seconds) is not None)
    peak = max(
        (step.workers for step in recording.started(pool.name) if step.at <= ends), default=0
    )
    return Figures(
        pool=pool.name,
        sla_seconds=sla,
        quantile=pool.profile.quantile,
        jobs=len(stories),
        late=len(stories) - sum(pickup <= sla for pickup in pickups),
        pickups=tuple(pickups),
        peak_workers=peak,
        worker_seconds=sum(_lived(life, begins, ends) for life in recording.workers_of(pool.name)),
        fixed_worker_seconds=peak * (ends - begins),
    )


def quantile(ascending: Sequence[float], share: float) -> float | None:
    """The smallest value that at least ``share`` of all do not exceed; None without values."""
    if not ascending:
        return None
    return ascending[max(math.ceil(share * len(ascending)), 1) - 1]


def _lived(life: WorkerLife, begins: float, ends: float) -> float:
    until = ends if life.stopped_at is None else min(life.stopped_at, ends)
    return max(until - max(life.started_at, begins), 0.0)
