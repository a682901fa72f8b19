"""The work of a pool, as measured."""

from __future__ import annotations

from penstock.events.snapshot import PoolSnapshot
from penstock.measuring.assumed import UNKNOWN_JOB_SECONDS


def job_seconds(snapshot: PoolSnapshot) -> float:
    """Mean run time; a second before the first job ended (nothing is lowered by that guess)."""
    measured = snapshot.service
    return measured.mean_seconds if measured and measured.count else UNKNOWN_JOB_SECONDS


def is_there(snapshot: PoolSnapshot) -> bool:
    """Something waits, runs or comes."""
    return bool(snapshot.waiting or snapshot.running or snapshot.arrival_per_second)


def with_first(workers: float, snapshot: PoolSnapshot) -> float:
    """``workers``, at least one while a job waits: else a pool that is at nothing stays there."""
    return max(workers, 1.0) if snapshot.waiting else workers
