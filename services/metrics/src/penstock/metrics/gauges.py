"""The pools' measurements as the numbers that are scraped."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping

from penstock import telemetry
from penstock.config import Pool
from penstock.events.snapshot import PoolSnapshot
from penstock.metrics.core.pool import PoolMeter
from penstock.metrics.core.queue import Queue
from penstock.metrics.core.totals import Histogram, Totals, Traced
from penstock.telemetry import metrics, snapshot_readings
from penstock.telemetry.meters import Exemplar, Reading, Sample, Spread
from penstock.telemetry.metric import Metric


class Readings:
    """The last snapshot of each pool, and what was counted.

    Args:
        stored: the last snapshot of each pool that the broker has; written by the service's loop.
    """

    def __init__(
        self,
        pools: Mapping[str, Pool],
        meters: Mapping[str, PoolMeter],
        stored: Mapping[str, PoolSnapshot],
    ) -> None:
        self._pools, self._meters, self._stored = pools, meters, stored

    def __call__(self) -> Iterable[Sample]:
        for name, pool in self._pools.items():
            yield Reading(metrics.PROMISED, pool.profile.sla_seconds, (name,))
            yield Reading(metrics.PROMISED_SHARE, pool.profile.quantile, (name,))
            if snapshot := self._stored.get(name):
                yield from snapshot_readings.of_pool(
                    snapshot, time.time(), is_elsewhere=bool(pool.source)
                )
            yield from _totals(name, self._meters[name].totals)
            if pool.kind != "spark":
                yield from _queues(name, self._meters[name].queues)


def _queues(pool: str, queues: Iterable[Queue]) -> Iterator[Reading]:
    for queue in queues:
        labels = (pool, queue.name)
        if look := queue.look:
            yield Reading(metrics.QUEUE_WAITING, look.waiting, labels)
            if queue.counts_claims:
                yield Reading(metrics.QUEUE_RUNNING, look.claimed, labels)
        if queue.delayed is not None:
            yield Reading(metrics.QUEUE_DELAYED, queue.delayed, labels)


def _totals(pool: str, totals: Totals) -> Iterator[Sample]:
    for queue, counts in totals.queues.items():
        yield Reading(metrics.STARTED, counts.started, (pool, queue))
        yield Reading(metrics.LATE, counts.late, (pool, queue))
        yield Reading(metrics.REDELIVERED, counts.redelivered, (pool, queue))
        yield Reading(metrics.FINISHED, counts.finished, (pool, queue))
        yield Reading(metrics.FAILED, counts.failed, (pool, queue))
        yield Reading(metrics.DEAD, counts.dead, (pool, queue))
    exemplars = [_exemplar(traced) for traced in totals.traced]
    yield _spread(metrics.PICKUP, totals.pickup, pool)._replace(exemplars=exemplars)
    yield _spread(metrics.RUN, totals.run, pool)


def _spread(metric: Metric, histogram: Histogram, pool: str) -> Spread:
    return Spread(metric, histogram.counts, histogram.total, (pool,))


def _exemplar(traced: Traced | None) -> Exemplar | None:
    ids = telemetry.ids(traced.traceparent) if traced else None
    return Exemplar(*ids, traced.seconds, traced.at) if traced and ids else None
