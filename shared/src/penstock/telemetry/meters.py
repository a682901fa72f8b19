"""What a process tells of itself in numbers, whoever asks for them: scraped, or posted by OTLP.

::

    meters = Meters()
    meters.count(metrics.SNAPSHOTS, "emails")            # something happened
    meters.observe(metrics.ROUND, 0.012)                 # something took so long
    meters.read(lambda: [Reading(metrics.LEADING, 1)])   # how things are, asked when it is read
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from penstock.measuring.quantiles import SECONDS_BUCKETS
from penstock.telemetry.metrics import BROKEN_READINGS, Metric

log = logging.getLogger(__name__)

MOST_SERIES = 500_000
"""Of one process, whatever is told: what is beyond is left out."""


class Reading(NamedTuple):
    """One gauge or counter now; ``labels``: values, in the order of the metric's."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()


class Exemplar(NamedTuple):
    """A measured value and the trace it is from. ``at``: POSIX seconds."""

    trace_id: str
    span_id: str
    value: float
    at: float


class Spread(NamedTuple):
    """A histogram now.

    Attributes:
        counts: by bucket, each its own, one more than there are bounds. total: sum of all values.
        exemplars: by bucket; None where there is none.
    """

    metric: Metric
    counts: Sequence[int]
    total: float
    labels: tuple[str, ...] = ()
    exemplars: Sequence[Exemplar | None] = ()


Told = Reading | Spread
Source = Callable[[], Iterable[Told]]


class Meters:
    """Counts, and the sources of all else. Written by the service's loop, read by any thread."""

    def __init__(self) -> None:
        self._sources: list[Source] = []
        self._counts: dict[tuple[str, tuple[str, ...]], Reading] = {}
        self._spreads: dict[tuple[str, tuple[str, ...]], Spread] = {}
        self._complained: set[Source] = set()

    def read(self, source: Source) -> None:
        """``source`` is asked, in any thread, each time somebody reads."""
        self._sources.append(source)

    def count(self, metric: Metric, *labels: str, by: float = 1) -> None:
        """So many more of something."""
        key = (metric.name, labels)
        if before := self._counts.get(key):
            by += before.value
        elif len(self._counts) >= MOST_SERIES:
            return
        self._counts[key] = Reading(metric, by, labels)

    def observe(self, metric: Metric, seconds: float, *labels: str) -> None:
        """Something took so long."""
        key = (metric.name, labels)
        before = self._spreads.get(key)
        if before is None and len(self._spreads) >= MOST_SERIES:
            return
        counts = list(before.counts) if before else [0] * (len(SECONDS_BUCKETS) + 1)
        counts[bisect_left(SECONDS_BUCKETS, seconds)] += 1
        total = seconds + (before.total if before else 0.0)
        self._spreads[key] = Spread(metric, counts, total, labels)

    def told(self) -> list[Told]:
        """All there is to tell now. A source that fails is left out, counted, and logged once."""
        found: list[Told] = []
        for source in tuple(self._sources):
            try:
                found += source()
            except Exception:
                self._fails(source)
        found += [*self._counts.copy().values(), *self._spreads.copy().values()]
        return found[:MOST_SERIES]

    def _fails(self, source: Source) -> None:
        self.count(BROKEN_READINGS)
        if source not in self._complained:
            self._complained.add(source)
            log.exception("some numbers cannot be told")
