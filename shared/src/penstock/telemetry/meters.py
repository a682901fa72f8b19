"""The metrics of a process: one registry, read by two exporters (`exposition`, `otlp`).

::

    meters = Meters()
    meters.count(metrics.SNAPSHOTS, "emails")            # an occurrence
    meters.observe(metrics.ROUND, 0.012)                 # a duration
    meters.read(lambda: [Reading(metrics.LEADING, 1)])   # a callback at each reading
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from penstock.measuring.quantiles import SECONDS_BUCKETS
from penstock.telemetry.metric import Metric
from penstock.telemetry.metrics import BROKEN_READINGS

log = logging.getLogger(__name__)

MOST_SERIES = 500_000
"""Series of one process; further ones are left out."""


class Reading(NamedTuple):
    """One gauge or counter now.

    Attributes:
        metric: its declaration.
        value: in the metric's unit.
        labels: values, in the order of the metric's.
    """

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()


class Exemplar(NamedTuple):
    """A measured value and the trace it is from.

    Attributes:
        trace_id: hexadecimal.
        span_id: hexadecimal.
        value: seconds.
        at: POSIX seconds.
    """

    trace_id: str
    span_id: str
    value: float
    at: float


class Spread(NamedTuple):
    """A histogram now.

    Attributes:
        counts: by bucket, each its own, one more than there are bounds.
        total: sum of all values.
        exemplars: by bucket; None where there is none.
        bounds: upper bounds of the buckets.
    """

    metric: Metric
    counts: Sequence[int]
    total: float
    labels: tuple[str, ...] = ()
    exemplars: Sequence[Exemplar | None] = ()
    bounds: Sequence[float] = SECONDS_BUCKETS


Sample = Reading | Spread
Source = Callable[[], Iterable[Sample]]


class Meters:
    """Counts, and the sources of all else. Written by the service's loop, read by any thread."""

    def __init__(self) -> None:
        self._sources: list[Source] = []
        self._counts: dict[tuple[str, tuple[str, ...]], Reading] = {}
        self._spreads: dict[tuple[str, tuple[str, ...]], Spread] = {}
        self._reported: set[Source] = set()

    def read(self, source: Source) -> None:
        """Calls ``source``, in any thread, at each reading."""
        self._sources.append(source)

    def count(self, metric: Metric, *labels: str, by: float = 1) -> None:
        """Adds to a counter."""
        key = (metric.name, labels)
        if before := self._counts.get(key):
            by += before.value
        # label values without a bound must not fill the memory
        elif len(self._counts) >= MOST_SERIES:
            return
        self._counts[key] = Reading(metric, by, labels)

    def observe(self, metric: Metric, seconds: float, *labels: str) -> None:
        """Adds a duration to a histogram."""
        key = (metric.name, labels)
        before = self._spreads.get(key)
        if before is None and len(self._spreads) >= MOST_SERIES:
            return
        counts = list(before.counts) if before else [0] * (len(SECONDS_BUCKETS) + 1)
        counts[bisect_left(SECONDS_BUCKETS, seconds)] += 1
        total = seconds + (before.total if before else 0.0)
        self._spreads[key] = Spread(metric, counts, total, labels)

    def samples(self) -> list[Sample]:
        """All samples now. A source that fails is left out, counted, and logged once."""
        samples: list[Sample] = []
        for source in tuple(self._sources):
            try:
                samples += source()
            except Exception:
                self._fails(source)
        samples += [*self._counts.copy().values(), *self._spreads.copy().values()]
        return samples[:MOST_SERIES]

    def _fails(self, source: Source) -> None:
        self.count(BROKEN_READINGS)
        if source not in self._reported:
            self._reported.add(source)
            log.exception("a metrics callback failed")
