"""A pool of Spark Workers whose source is streaming queries, folded into a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from math import inf

import msgspec

from penstock.config import Pool
from penstock.events.snapshot import PoolSnapshot, StreamLoad
from penstock.events.stream_report import BatchProgress
from penstock.events.worker import QueueReport
from penstock.metrics.core.pool import PoolMeter
from penstock.metrics.core.sketches import serialized
from penstock.metrics.core.sources.look import SourceFault, StreamLook
from penstock.metrics.core.sources.meter import NO_FAULTS
from penstock.metrics.core.streams.query import StreamQuery
from penstock.metrics.core.tasks import AppTasks


class StreamMeter(PoolMeter):
    """A job is a batch here, and its start, which the promise is about, is the batch's end.

    Attributes:
        source: the table ``[sources.NAME]`` that names the queries' reports.
        source_queues: the queries.

    Args:
        pool: with a ``source`` of kind ``spark-stream``.
        window_seconds: how far back rates and distributions look.
        interval_seconds: usual time between looks.
    """

    def __init__(self, pool: Pool, window_seconds: float, interval_seconds: float) -> None:
        profile = pool.profile
        self.source_queues: Sequence[StreamQuery] = [
            StreamQuery(name, profile.sla_seconds) for name in pool.source_queues
        ]
        super().__init__(
            pool.name, self.source_queues, profile, window_seconds, interval_seconds, inf
        )
        self.source, self._worker_slots = pool.source, pool.slots

    # --- taking in -------------------------------------------------------------------------------
    def see_apps(self, apps: Sequence[AppTasks], now: float) -> None:
        """The cluster was looked at: the applications of this pool."""
        by_id = {app.app_id: app for app in apps}
        for query in self.source_queues:
            query.see_apps(by_id, self.workers.ready * self._worker_slots, now)

    def see_source(
        self,
        looks: Mapping[str, StreamLook | SourceFault],
        now: float,
        wall_now: float,
        _: Mapping[str, str] = NO_FAULTS,
    ) -> None:
        """The reports were looked at; a query with a fault stays as it was seen last.

        Raises:
            BadSketch: durations in them that cannot be used.
        """
        for query in self.source_queues:
            look = looks.get(query.name, SourceFault("it was not looked at"))
            if isinstance(look, SourceFault):
                query.fault = "" if query.is_gone else look.text
                if query.is_gone:
                    query.leave(now)
                continue
            query.fault = ""
            batches = query.see_report(look.report, now - look.behind_seconds, now)
            done = _done(batches, self._profile.sla_seconds)
            if failure := self._add_queue_report(query.name, done, wall_now, now):
                raise failure

    def observe(self, now: float) -> None:
        looks = self._looks()
        if looks is None or min(look.at for look in looks) == self._at:
            self.workers.refresh(now)
        else:
            super().observe(now)
            for query in self.source_queues:
                query.settle()

    # --- giving out ------------------------------------------------------------------------------
    def snapshot(
        self, now: float, at: datetime, envelope: Mapping[str, str], wakeup: str
    ) -> PoolSnapshot | None:
        for query in self.source_queues:
            query.age_of_late(now, at.timestamp())
        snapshot = super().snapshot(now, at, envelope, wakeup)
        if snapshot is None:
            return None
        loads = tuple(query.load(now) for query in self.source_queues)
        return msgspec.structs.replace(
            snapshot,
            source=self.source,
            source_fault=next(chain(self._faults(), _ended(loads)), ""),
            streams=loads,
            waiting_ages_seconds=(),
            worker_cpu_cores=None,
            worker_memory_bytes=None,
        )

    @property
    def unread_fault(self) -> str:
        return "" if self._looks() is not None else next(self._faults(), "")

    def _faults(self) -> Iterator[str]:
        return (query.fault for query in self.source_queues if query.fault)


def _ended(loads: Sequence[StreamLoad]) -> Iterator[str]:
    return (f"query {load.query} needs no slots: {load.ended}" for load in loads if load.ended)


def _done(batches: Sequence[BatchProgress], promise_seconds: float) -> QueueReport:
    """Batches as jobs that were done; those without rows had nothing to be late with."""
    seconds = [batch.seconds for batch in batches if batch.rows]
    return QueueReport(
        started=len(seconds),
        late=sum(one > promise_seconds for one in seconds),
        finished=len(seconds),
        pickup_sketch=serialized(seconds),
        pickup_sum_seconds=sum(seconds),
        service_sketch=serialized(seconds),
        service_sum_seconds=sum(seconds),
        service_sum_squares=sum(one * one for one in seconds),
    )
