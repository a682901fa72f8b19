"""All reports on a pool's jobs since this process began: what counters and histograms show."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from penstock.events.worker import QueueReport
from penstock.measuring.quantiles import SECONDS_BUCKETS

_MOST = 2**32
"""No report of one second counts more, whatever it says."""
_MOST_TRACE_CHARACTERS = 100
"""Of a traceparent, which has 55; a longer one is not kept."""


_REPORTED = ("started", "late", "redelivered", "finished", "failed")


class Counts(msgspec.Struct):
    """Of one queue, attempts: begun; of these late and repeated; ended; of these failed. Jobs that
    are dead."""

    started: int = 0
    late: int = 0
    redelivered: int = 0
    finished: int = 0
    failed: int = 0
    dead: int = 0


class Traced(NamedTuple):
    """A job that waited so long, by its traceparent; ``at``: POSIX seconds."""

    seconds: float
    traceparent: str
    at: float


class Histogram:
    """Durations by bucket, ``counts[-1]`` those above all bounds; ``total`` is their sum."""

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS_BUCKETS) + 1)
        self.total = 0.0

    def add(self, counts: Sequence[int], total: float) -> None:
        """So many more in each bucket; with no counts there is nothing to add."""
        if counts:
            self.counts = [old + new for old, new in zip(self.counts, counts, strict=True)]
            self.total += total


class Totals:
    """Counts by queue; pickup and run times, and for pickups a traced job of each bucket."""

    def __init__(self, queues: Iterable[str]) -> None:
        self.queues = {name: Counts() for name in queues}
        self.pickup, self.run = Histogram(), Histogram()
        self.traced: list[Traced | None] = [None] * (len(SECONDS_BUCKETS) + 1)

    def include(self, queue: str) -> None:
        """Counts a further queue from now on."""
        self.queues.setdefault(queue, Counts())

    def died(self, queue: str) -> None:
        """One more job of one of the queues became a dead letter."""
        self.queues[queue].dead += 1

    def add(self, queue: str, done: QueueReport, at: float) -> None:
        """A worker's report of what it did on one of the queues; ``at``: POSIX seconds."""
        counts = self.queues[queue]
        for name in _REPORTED:
            increase = min(max(getattr(done, name), 0), _MOST)
            setattr(counts, name, getattr(counts, name) + increase)
        if 0 < len(done.slowest_trace) <= _MOST_TRACE_CHARACTERS:
            traced = Traced(max(done.slowest_seconds, 0.0), done.slowest_trace, at)
            self.traced[bisect_left(SECONDS_BUCKETS, traced.seconds)] = traced
