"""When a worker has served long enough and another should take its place. Pure."""

from __future__ import annotations

import msgspec

from penstock.config import Profile

SPREAD = 0.1
"""Share of the time limit that is added at random: workers that started together do not all end
together."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one worker's life; 0 is none.

    Attributes:
        memory_bytes: resident, looked at between jobs and once a second; the running job is
            finished.
        jobs: how many it takes.
        seconds: from its start.
    """

    memory_bytes: int = 0
    jobs: int = 0
    seconds: float = 0.0


def limits(profile: Profile, draw: float) -> Limits:
    """What a pool's profile says. ``draw``: uniform in [0, 1)."""
    return Limits(
        memory_bytes=profile.limit_memory_bytes,
        jobs=profile.limit_jobs,
        seconds=profile.limit_seconds * (1 + SPREAD * draw),
    )


def reached(limits: Limits, jobs: int, age_seconds: float, memory_bytes: int) -> str:
    """Which limit is reached, for people; empty when none is."""
    if limits.jobs and jobs >= limits.jobs:
        return f"limit: {jobs} jobs done, {limits.jobs} allowed"
    if limits.seconds and age_seconds >= limits.seconds:
        return f"limit: {age_seconds:.0f} s old, {limits.seconds:.0f} s allowed"
    if limits.memory_bytes and memory_bytes >= limits.memory_bytes:
        used, allowed = memory_bytes >> 20, limits.memory_bytes >> 20
        return f"limit: {used} MiB in use, {allowed} MiB allowed"
    return ""


def capacity(limits: Limits, wanted: int, jobs: int, unfinished: int) -> int:
    """How many of the ``wanted`` jobs may be claimed: never more than the limit leaves."""
    return min(wanted, max(limits.jobs - jobs - unfinished, 0)) if limits.jobs else wanted
