"""Whether a measurement may be decided on. Old or missing ones never lower a worker count."""

from __future__ import annotations

from penstock.decider.core.inputs import SeenPool
from penstock.events.snapshot import PoolSnapshot


def age_seconds(seen: SeenPool, now: float) -> float:
    """Age of the oldest thing in a snapshot that decisions rest on."""
    return max(now - seen.at, 0.0) + seen.snapshot.queue_age_seconds


def fault(seen: SeenPool | None, now: float, stale_seconds: float) -> str | None:
    """Why nothing can be decided from this snapshot, as a clause; None if it can."""
    if seen is None:
        return "nothing was measured yet"
    age = age_seconds(seen, now)
    if age > stale_seconds:
        return f"the last measurement is {age:.1f} s old (more than {stale_seconds:g} s)"
    return None


def gap(snapshot: PoolSnapshot) -> str | None:
    """What a fresh snapshot lacks, so that it may raise a demand but not lower it."""
    if snapshot.arrival_per_second is None:
        return "the arrival rate is not measured yet"
    if snapshot.waiting and snapshot.oldest_waiting_seconds is None:
        return "the age of the oldest job is unknown"
    loaded = snapshot.waiting or snapshot.arrival_per_second > 0
    if loaded and (snapshot.service is None or not snapshot.service.count):
        return "no job's run time is measured yet"
    return None
