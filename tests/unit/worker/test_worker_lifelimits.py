"""When a worker has served long enough."""

from __future__ import annotations

import pytest

from penstock.config import Profile
from penstock.worker.core.limits import Limits, capacity, limits, reached

NONE = Limits()


@pytest.mark.parametrize(
    ("bounds", "jobs", "age_seconds", "memory_bytes", "words"),
    [
        (NONE, 10**9, 1e9, 10**15, ""),
        (Limits(jobs=3), 2, 0, 0, ""),
        (Limits(jobs=3), 3, 0, 0, "3 jobs done, 3 allowed"),
        (Limits(seconds=60), 0, 59.9, 0, ""),
        (Limits(seconds=60), 0, 60, 0, "60 s old"),
        (Limits(memory_bytes=2 << 20), 0, 0, (2 << 20) - 1, ""),
        (Limits(memory_bytes=2 << 20), 0, 0, 3 << 20, "3 MiB in use, 2 MiB allowed"),
    ],
)
def test_a_limit(
    bounds: Limits, jobs: int, age_seconds: float, memory_bytes: int, words: str
) -> None:
    said = reached(bounds, jobs, age_seconds, memory_bytes)
    assert words in said
    assert said.startswith("limit") == bool(words)  # what the executor goes by


def test_no_more_jobs_are_claimed_than_the_limit_leaves() -> None:
    assert capacity(NONE, 256, jobs=10_000, unfinished=5) == 256
    assert capacity(Limits(jobs=10), 256, jobs=6, unfinished=1) == 3
    assert capacity(Limits(jobs=10), 2, jobs=6, unfinished=1) == 2
    assert capacity(Limits(jobs=10), 256, jobs=10, unfinished=0) == 0


def test_workers_that_started_together_do_not_end_together() -> None:
    profile = Profile(limit_seconds=100)
    assert [limits(profile, draw).seconds for draw in (0, 0.5)] == pytest.approx([100, 105])
