"""Listens to what pools are measured by, besides queues: workers, hosts, trained forecasts.

Workers report on a plain subject, and their starts and ends are in the log. The snapshots of hosts
decide whose reports are believed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

import msgspec

from penstock.bus.protocol import Bus, Stored, Subscription
from penstock.events.envelope import MalformedEvent
from penstock.events.forecasting import FORECAST_EVENTS, ForecastMade
from penstock.events.job import JOB_EVENTS, JobDead
from penstock.events.snapshot import SNAPSHOTS, HostSnapshot
from penstock.events.subjects import Subjects
from penstock.events.worker import WORKER_EVENTS, WorkerReady, WorkerReport, WorkerStopped
from penstock.measuring.trained import Curve
from penstock.metrics.core.job_totals import JobTotals
from penstock.metrics.core.pool import PoolMeter
from penstock.metrics.core.roster import Roster, Unbelievable
from penstock.metrics.core.sketches import BadSketch
from penstock.runtime.poison_messages import skipping_poison

log = logging.getLogger("penstock.metrics")

_COMPLAINT_SECONDS = 60.0


class WorkerListener:
    """Hands reports to the meters of their pools. No message can stop it.

    Args:
        roster: which workers there are.
    """

    def __init__(
        self, bus: Bus, subjects: Subjects, meters: Mapping[str, PoolMeter], roster: Roster
    ) -> None:
        self._bus = bus
        self._subjects = subjects
        self._meters = meters
        self._roster = roster
        self._decoder = msgspec.json.Decoder(WorkerReport)
        self._complained_at: dict[str, float] = {}

    async def listen(self) -> Subscription:
        return await self._bus.listen(self._subjects.worker_report("*", "*"), self._on_report)

    async def follow(self) -> None:
        """Worker events, without end."""
        subjects = [
            self._subjects.events("worker", "*", kind.__name__)
            for kind in (WorkerReady, WorkerStopped)
        ]
        async for stored in self._bus.follow(self._subjects.events_stream, subjects):
            try:
                event = WORKER_EVENTS.decode(stored.body)
            except MalformedEvent as error:
                self._complain(stored.subject, error)
                continue
            with skipping_poison(stored.subject):
                self._on_event(event)

    async def follow_hosts(self) -> None:
        """Host snapshots, without end."""
        pattern = self._subjects.host_snapshot("*")
        stream = self._subjects.snapshots_stream
        async for stored in self._bus.follow(stream, [pattern], start="last"):
            with skipping_poison(stored.subject):
                self._see_host(stored)

    def _see_host(self, stored: Stored) -> None:
        try:
            snapshot = SNAPSHOTS.decode(stored.body)
            if isinstance(snapshot, HostSnapshot):
                self._on_host(snapshot, stored)
        except ValueError as error:
            self._complain(stored.subject, error)

    def _on_host(self, snapshot: HostSnapshot, stored: Stored) -> None:
        if stored.subject != self._subjects.host_snapshot(snapshot.host):
            raise Unbelievable(f"found a snapshot of host {snapshot.host!r}")
        at, now = stored.at.timestamp(), time.monotonic()
        for report in self._roster.see(snapshot, at, now):
            self._add(report, now)

    def _on_event(self, event: object) -> None:
        match event:
            case WorkerReady() if meter := self._meters.get(event.pool):
                self._on_ready(meter, event)
            case WorkerStopped() if meter := self._meters.get(event.pool):
                meter.workers.remove(event.worker)

    def _on_ready(self, meter: PoolMeter, event: WorkerReady) -> None:
        if event.spawn_seconds is None:
            return
        try:
            meter.add_spawn(event.spawn_seconds, event.together, time.monotonic())
        except ValueError as error:
            self._complain(f"worker {event.worker}", error)

    def _on_report(self, subject: str, body: bytes) -> None:
        with skipping_poison(subject):
            self._take_report(subject, body)

    def _take_report(self, subject: str, body: bytes) -> None:
        try:
            report, now = self._decoder.decode(body), time.monotonic()
            if subject != self._subjects.worker_report(report.host, report.worker):
                raise Unbelievable(f"found a report of worker {report.worker!r}")
            if report.pool in self._meters and (admitted := self._roster.admit(report, now)):
                self._add(admitted, now)
        except (ValueError, RecursionError, OverflowError) as error:
            self._complain(subject, error)

    def _add(self, report: WorkerReport, now: float) -> None:
        if meter := self._meters.get(report.pool):
            try:
                meter.add_report(report, now)
            except BadSketch as error:
                self._complain(f"worker {report.worker}", error)

    def _complain(self, subject: str, error: Exception) -> None:
        """Once a minute for each kind of mistake: a broken worker repeats it each second."""
        now, kind = time.monotonic(), type(error).__name__
        if now - self._complained_at.get(kind, -_COMPLAINT_SECONDS) >= _COMPLAINT_SECONDS:
            self._complained_at[kind] = now
            log.warning("%s is ignored: %s", subject, error)


class ForecastListener:
    """Hands forecasts to the meters of their pools. No message can stop it."""

    def __init__(self, bus: Bus, subjects: Subjects, meters: Mapping[str, PoolMeter]) -> None:
        self._bus, self._subjects, self._meters = bus, subjects, meters

    async def follow(self) -> None:
        """Without end."""
        subject = self._subjects.events("pool", "*", ForecastMade.__name__)
        # The last one of each pool first: a forecast holds for hours, and this process may be new.
        async for stored in self._bus.follow(self._subjects.events_stream, [subject], "last"):
            with skipping_poison(stored.subject):
                self._take(stored)

    def _take(self, stored: Stored) -> None:
        try:
            made = FORECAST_EVENTS.decode(stored.body)
        except MalformedEvent as error:
            log.warning("%s is ignored: %s", stored.subject, error)
            return
        if isinstance(made, ForecastMade) and (meter := self._meters.get(made.pool)):
            meter.use_forecast(None if made.off else _curve(made))


class DeadListener:
    """Counts the jobs that become dead letters, by whatever service. No message can stop it.

    Args:
        pool_of: the pool of each queue; the service adds queues that it finds later.
        jobs: counts by function.
    """

    def __init__(
        self,
        bus: Bus,
        subjects: Subjects,
        meters: Mapping[str, PoolMeter],
        pool_of: Mapping[str, str],
        jobs: JobTotals,
    ) -> None:
        self._bus, self._subjects, self._meters = bus, subjects, meters
        self._pool_of, self._jobs = pool_of, jobs

    async def follow(self) -> None:
        """Without end."""
        subject = self._subjects.events("job", "*", JobDead.__name__)
        async for stored in self._bus.follow(self._subjects.events_stream, [subject]):
            with skipping_poison(stored.subject):
                self._take(stored)

    def _take(self, stored: Stored) -> None:
        try:
            event = JOB_EVENTS.decode(stored.body)
        except MalformedEvent as error:
            log.warning("%s is ignored: %s", stored.subject, error)
            return
        if isinstance(event, JobDead) and (pool := self._pool_of.get(event.queue)):
            self._meters[pool].totals.died(event.queue)
            if event.function:
                self._jobs.add_dead(pool, event.function, time.monotonic())


def _curve(made: ForecastMade) -> Curve:
    """By the steady clock, on which meters live."""
    start = made.starts_at.timestamp() - time.time() + time.monotonic()
    return Curve(start, made.step_seconds, made.mean_per_second)
