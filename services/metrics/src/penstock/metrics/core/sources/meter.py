"""A pool whose work lies in another system, folded into a snapshot like any other pool's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from math import inf

import msgspec

from penstock.config import Pool
from penstock.events.snapshot import PoolSnapshot, Quantiles
from penstock.events.worker import QueueReport, WorkerReport
from penstock.metrics.core.pool import PoolMeter
from penstock.metrics.core.sources.look import SourceFault, SourceLook
from penstock.metrics.core.sources.queue import SourceQueue

NO_FAULTS: Mapping[str, str] = {}
_SET_COUNT = 1
"""Samples of a run time that is set."""
_LEAST_RUNS = 10
"""So many have to be measured to count more than what is set: the first ones of a pool are worked
out of few looks, and may seem three times as long."""


class SourceMeter(PoolMeter):
    """The messages are those of another system, the workers' processes are our own.

    Attributes:
        source: the table ``[sources.NAME]`` that the queues are in.
        source_queues: the queues; a pattern is one, the sum over those that it names.

    Args:
        pool: with a ``source``.
        window_seconds: how far back rates and distributions look.
        interval_seconds: usual time between looks.
    """

    def __init__(self, pool: Pool, window_seconds: float, interval_seconds: float) -> None:
        self._runtime_seconds = pool.runtime_seconds or None
        self.source_queues: Sequence[SourceQueue] = [
            SourceQueue(name, pool.profile.sla_seconds, self._runtime_seconds)
            for name in pool.source_queues
        ]
        super().__init__(
            pool.name, self.source_queues, pool.profile, window_seconds, interval_seconds, inf,
            slots=pool.job_slots,
        )  # fmt: skip
        self.source = pool.source
        self._workers_report_runs = False
        self._had_arrivals = False
        self._former: tuple[PoolSnapshot, float] | None = None
        self._was_measured = False

    # --- taking in -------------------------------------------------------------------------------
    def see_source(
        self,
        looks: Mapping[str, SourceLook | SourceFault],
        now: float,
        wall_now: float,
        faults: Mapping[str, str] = NO_FAULTS,
    ) -> None:
        """The system was looked at; a queue with a fault stays as it was seen last.

        Args:
            looks: by queue; a pattern is one, whose look is the sum over those that it names.
            now: of a steady clock; ``wall_now``: the same instant in POSIX seconds.
            faults: by pattern: why some of its queues could not be looked at.
        """
        ready = self.workers.ready
        slots = max(self.workers.slots_ready, ready)
        for queue in self.source_queues:
            look = looks.get(queue.name, SourceFault("it was not looked at"))
            if isinstance(look, SourceFault):
                queue.fault = look.text
                continue
            queue.fault = faults.get(queue.name, "")
            busy_slots = None if self._workers_report_runs else slots
            done = queue.see_source(look, now, wall_now, self.workers.idle, busy_slots)
            if failure := self._add_queue_report(queue.name, done, wall_now, now):
                raise failure

    def observe(self, now: float) -> None:
        looks = self._looks()
        self._had_arrivals = any(queue.arrived for queue in self.source_queues)
        if looks is None or min(look.at for look in looks) == self._at:
            self.workers.refresh(now)
            return
        super().observe(now)
        for queue in self.source_queues:
            queue.settle()

    @property
    def has_arrivals(self) -> bool:
        return self._had_arrivals

    def add_report(self, report: WorkerReport, now: float) -> None:
        """Of what workers report of messages, their ends and run times count.

        Raises:
            BadSketch: durations in it that cannot be used; everything else in it was taken.
        """
        runs = {}
        for queue in self.source_queues:
            if done := report.queues.get(queue.name):
                queue.report_ended(done.finished)
                if done.service_sketch:
                    self._workers_report_runs = True
                runs[queue.name] = QueueReport(
                    service_sketch=done.service_sketch,
                    service_sum_seconds=done.service_sum_seconds,
                    service_sum_squares=done.service_sum_squares,
                )
        super().add_report(msgspec.structs.replace(report, queues=runs), now)

    def remember(self, last: PoolSnapshot, now: float, silent_seconds: float) -> None:
        """As every pool does; a run time that was only set is set anew."""
        service = last.service
        if service is not None and service.count <= _SET_COUNT:
            last = msgspec.structs.replace(last, service=None)
        super().remember(last, now, silent_seconds)
        self._was_measured = True
        if last.source == self.source and last.queues == tuple(q.name for q in self.source_queues):
            self._former = last, now - max(silent_seconds, 0.0)

    # --- giving out ------------------------------------------------------------------------------
    def snapshot(
        self, now: float, at: datetime, envelope: Mapping[str, str], wakeup: str
    ) -> PoolSnapshot | None:
        snapshot = super().snapshot(now, at, envelope, wakeup)
        if snapshot is None:
            return self._former_with_fault(now, at, envelope, wakeup)
        estimated = frozenset[str]().union(*(queue.estimated for queue in self.source_queues))
        service = snapshot.service
        if not self._workers_report_runs:
            estimated |= {"service"}
            least = _LEAST_RUNS if self._runtime_seconds else _SET_COUNT + 1
            service = _as_varied(service, least) or _of(self._runtime_seconds)
        return msgspec.structs.replace(
            snapshot,
            source=self.source,
            source_fault=self._fault,
            estimated=tuple(sorted(estimated)),
            stuck=sum(queue.stuck for queue in self.source_queues),
            cap=self._cap,
            service=service,
        )

    @property
    def unread_fault(self) -> str:
        # What was measured before holds the run times and the budget: it stays the last snapshot.
        return "" if self._was_measured or self._looks() is not None else self._fault

    @property
    def _cap(self) -> int | None:
        caps = [queue.cap for queue in self.source_queues]
        return None if None in caps else sum(cap for cap in caps if cap is not None)

    @property
    def _fault(self) -> str:
        return next((queue.fault for queue in self.source_queues if queue.fault), "")

    def _former_with_fault(
        self, now: float, at: datetime, envelope: Mapping[str, str], wakeup: str
    ) -> PoolSnapshot | None:
        """What an earlier process saw last, and why it is not seen now; None with no fault."""
        if self._former is None or not self._fault:
            return None
        (last, last_at), workers = self._former, self.workers
        return msgspec.structs.replace(
            last,
            id=envelope["id"],
            source=self.source,
            at=at,
            source_fault=self._fault,
            workers_ready=workers.ready,
            workers_idle=workers.idle,
            slots_ready=workers.slots_ready if self._slots > 1 else 0,
            slots_idle=workers.slots_idle if self._slots > 1 else 0,
            worker_age_seconds=None if workers.reported_at is None else now - workers.reported_at,
            queue_age_seconds=last.queue_age_seconds + max(now - last_at, 0.0),
            wakeup=wakeup,
        )


def _as_varied(service: Quantiles | None, least: int) -> Quantiles | None:
    """Run times worked out as means hide how much they differ; exponential ones have a cv² of 1."""
    if service is None or service.count < least:
        return None
    return msgspec.structs.replace(service, cv2=max(service.cv2, 1.0))


def _of(seconds: float | None) -> Quantiles | None:
    if seconds is None:
        return None
    return Quantiles(
        count=_SET_COUNT,
        mean_seconds=seconds,
        p50_seconds=seconds,
        p95_seconds=seconds,
        p99_seconds=seconds,
    )
