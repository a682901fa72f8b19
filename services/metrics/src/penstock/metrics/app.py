"""The metrics service: measures queues and workers, publishes a snapshot of each pool."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

from penstock.bus import bounded
from penstock.bus.protocol import BusError
from penstock.config import Pool, Settings
from penstock.config.topology import pools
from penstock.events.envelope import MalformedEvent, new_id
from penstock.events.snapshot import SNAPSHOTS, PoolSnapshot, SourceUnread
from penstock.events.subjects import Subjects
from penstock.jobs.queues.discovery import QueueDiscovery
from penstock.measuring.hosts import HostBounds
from penstock.metrics.core.cadence import Cadence, PublishedState
from penstock.metrics.core.job_totals import JobTotals
from penstock.metrics.core.pool import PoolMeter
from penstock.metrics.core.queue import Queue
from penstock.metrics.core.roster import Roster
from penstock.metrics.core.sources.meter import SourceMeter
from penstock.metrics.core.streams.meter import StreamMeter
from penstock.metrics.gauges import Readings
from penstock.metrics.job_gauges import JobReadings
from penstock.metrics.listeners import DeadListener, ForecastListener, WorkerListener
from penstock.metrics.looker import SourceLooker
from penstock.metrics.publish import Publisher
from penstock.metrics.queues import QueueWatch
from penstock.metrics.sources import registry
from penstock.metrics.sources.registry import open_source
from penstock.metrics.spark_tasks import SparkTasks
from penstock.metrics.stream_listener import StreamListener
from penstock.metrics.wakeups import FirstJobs
from penstock.runtime import service_process
from penstock.runtime.reloading import Reread
from penstock.runtime.service import Service
from penstock.runtime.tasks import within
from penstock.telemetry import metrics

log = logging.getLogger("penstock.metrics")

_WOKEN_SECONDS = 0.05
_LOOK_SHARE = 0.1
"""Looking at the queues takes at most this share of the time, however many there are."""
_REMEMBER_AT_ONCE = 50
_REPORTS_MISSED = 2.0
_PATIENCE_SHARE = 0.1
"""Of the promise: jobs that are younger are taken for as old as the oldest, at that little cost."""


def run(settings: Settings, reread: Reread | None = None) -> None:
    """The whole process; raises ConfigError before anything starts."""
    pools(settings)
    registry.check(settings.sources)
    service_process.run("metrics", settings, body, reread=reread)


async def body(running: Service) -> None:
    """What the service does between its start and its end."""
    await Metrics(running).run()


class Metrics:
    """Measures every configured pool each interval, and at once when it matters."""

    def __init__(self, running: Service) -> None:
        settings, bus = running.settings, running.bus
        subjects, configured = Subjects(settings.prefix), pools(settings)
        self._service, self._bus, self._subjects = running, bus, subjects
        elsewhere = [_source_meter(settings, pool) for pool in configured.values() if pool.source]
        streams = {meter.name: meter for meter in elsewhere if isinstance(meter, StreamMeter)}
        self._spark = SparkTasks(settings, configured, streams)
        queued = [pool for pool in configured.values() if pool.kind != "spark" and not pool.source]
        self._default_pool = settings.default_pool
        self._watch = QueueWatch(
            bus,
            subjects,
            (queue for pool in queued for queue in _queues(pool)),
            QueueDiscovery(bus, settings) if settings.default_pool else None,
            lambda name: _queue(configured[settings.default_pool], name),
        )
        self._jobs = JobTotals(settings.metrics.functions, settings.metrics.job_series)
        self._meters: dict[str, PoolMeter] = {
            pool.name: PoolMeter(
                pool.name,
                [self._watch.queues[name] for name in pool.queues],
                pool.profile,
                settings.metrics.window_seconds,
                settings.metrics.interval_seconds,
                settings.jobs.claim_seconds + _REPORTS_MISSED,
                self._jobs,
                slots=pool.job_slots,
            )
            for pool in queued
        }
        self._spark.serve(configured, self._meters)
        self._meters |= self._spark.meters
        self._meters |= {meter.name: meter for meter in elsewhere}
        queries = (query.name for meter in streams.values() for query in meter.source_queues)
        self._streams = StreamListener(bus, subjects, queries)
        self._lookers = [
            SourceLooker(name, table, meters, partial(open_source, reports=self._streams))
            for name, table in settings.sources.items()
            if (meters := [meter for meter in elsewhere if meter.source == name])
        ]
        self._pool_of = {name: pool.name for pool in configured.values() for name in pool.queues}
        self._published = {name: PublishedState() for name in configured}
        self._cadence = Cadence(
            interval_seconds=settings.metrics.interval_seconds,
            least_seconds=1 / settings.metrics.max_per_second,
        )
        self._first_jobs = FirstJobs(bus, subjects)
        self._roster = Roster(
            HostBounds(
                allowed=settings.hosts.allowed,
                most=settings.hosts.most,
                lease_seconds=settings.host.lease_seconds,
            )
        )
        self._workers = WorkerListener(bus, subjects, self._meters, self._roster)
        self._forecasts = ForecastListener(bus, subjects, self._meters)
        self._dead = DeadListener(bus, subjects, self._meters, self._pool_of, self._jobs)
        self._publisher = Publisher(bus, subjects, running.source)
        self._looked_at = time.monotonic()
        self._broker_away = False
        self._rounded_at: float | None = None
        self._stored: dict[str, PoolSnapshot] = {}
        self._configured = configured
        self._unread_faults: dict[str, str] = {}
        self._quiet_seconds = max(
            settings.decider.stale_seconds, 3 * self._cadence.interval_seconds
        )
        running.meters.read(Readings(configured, self._meters, self._stored))
        running.meters.read(JobReadings(self._jobs))
        running.checks.require("measuring", self._why_not_measuring)

    async def run(self) -> None:
        listening = [await self._workers.listen(), *await self._streams.listen()]
        await self._remember()
        self._service.spawn(self._workers.follow(), "worker events")
        self._service.spawn(self._workers.follow_hosts(), "host snapshots")
        self._service.spawn(self._forecasts.follow(), "forecasts")
        self._service.spawn(self._dead.follow(), "dead jobs")
        self._service.spawn(self._count_delayed(), "schedules")
        self._service.spawn(self._look_up_lines(), "lines")
        self._service.spawn(self._spark.run(self._service), "spark tasks")
        for looker in self._lookers:
            self._service.spawn(looker.run(self._service), f"source {looker.name}")
        self._service.spawn(self._measure(), "measure")
        await self._service.stopping.wait()
        with suppress(BusError):
            for subscription in listening:
                await subscription.unsubscribe()
            await self._first_jobs.close()

    # --- loops -----------------------------------------------------------------------------------
    async def _measure(self) -> None:
        while not self._service.stopping.is_set():
            try:
                await self._round()
                self._broker_answers()
            except BusError as error:
                self._broker_fails(error)
            await self._wait()

    async def _count_delayed(self) -> None:
        seconds = self._cadence.interval_seconds
        while True:
            with suppress(BusError):  # the measuring loop logs it
                seconds = await self._watch.count_delayed()
            if not await self._service.pause(seconds):
                return

    async def _look_up_lines(self) -> None:
        seconds = self._cadence.interval_seconds
        while await self._service.pause(seconds):
            with suppress(BusError):
                seconds = await self._watch.look_up_lines()

    # --- one round -------------------------------------------------------------------------------
    async def _round(self) -> None:
        """1 look at all queues; 2 look up heads that moved; 3 fold; 4 publish; 5 listen again."""
        woken = self._first_jobs.take()
        self._looked_at = time.monotonic()
        for queue_name in woken:
            self._published[self._pool_of[queue_name]].woken = True
        await self._watch.look()
        self._include_discovered()
        await self._watch.look_up_heads()
        now, at = time.monotonic(), datetime.now(UTC)
        self._rounded_at = now
        # A worker that reports more than any host has would make the pool's need absurd.
        largest = self._roster.largest
        for meter in self._meters.values():
            if largest:
                meter.workers.bound(*largest)
            meter.observe(now)
        self._spark.expect(now, at.timestamp())
        for name, meter in self._meters.items():
            published, waiting = self._published[name], meter.waiting(now)
            published.observe(waiting, meter.workers.ready, meter.has_arrivals, now)
        if snapshots := list(self._due(now, at)):
            await self._publisher.publish(snapshots)
            self._keep(snapshots)
        await self._publish_unread(at)
        for queue in self._watch.queues.values():
            await self._first_jobs.arm(queue)

    def _include_discovered(self) -> None:
        while self._watch.discovered:
            queue = self._watch.discovered.pop()
            self._meters[self._default_pool].include(queue)
            self._pool_of[queue.name] = self._default_pool
            self._published[self._default_pool].woken = True

    def _due(self, now: float, at: datetime) -> Iterator[PoolSnapshot]:
        for name, meter in self._meters.items():
            published, ready = self._published[name], meter.workers.ready
            if not (reason := published.reason(self._cadence, ready, now)):
                continue
            envelope = {"id": new_id(), "source": self._service.source}
            if snapshot := meter.snapshot(now, at, envelope, reason):
                published.update(ready, now)
                yield snapshot

    async def _publish_unread(self, at: datetime) -> None:
        """Of pools that were never measured: why, once for each reason."""
        faults = {
            name: fault for name, meter in self._meters.items() if (fault := meter.unread_fault)
        }
        unread = [
            SourceUnread(
                id=new_id(), source=self._service.source, at=at, pool=name,
                of_source=self._configured[name].source, source_fault=fault,
            )
            for name, fault in faults.items()
            if self._unread_faults.get(name) != fault
        ]  # fmt: skip
        if unread:
            await self._publisher.publish_unread(unread)
        self._unread_faults = faults

    async def _wait(self) -> None:
        """Until the next look is due or a first job rings; never more looks than their share."""
        now = time.monotonic()
        # Of thousands of queues one look takes longer than an interval: the broker has other work.
        rest = self._looked_at + self._watch.cost_seconds / _LOOK_SHARE - now
        if rest > 0:
            await asyncio.sleep(rest)
        due = self._next_look() - time.monotonic()
        # While the broker is away, no faster than each interval, whatever was to be looked at.
        if due > 0 and not self._broker_away:
            await within(due, self._first_jobs.rang.wait())
        elif self._broker_away:
            await asyncio.sleep(self._cadence.interval_seconds)

    def _keep(self, snapshots: Sequence[PoolSnapshot]) -> None:
        """For the metrics endpoint."""
        for snapshot in snapshots:
            self._stored[snapshot.pool] = snapshot
            self._service.meters.count(metrics.SNAPSHOTS, snapshot.pool)

    def _why_not_measuring(self) -> str:
        if self._rounded_at is None:
            return "no queue was looked at yet"
        silent = time.monotonic() - self._rounded_at
        return f"no queue was looked at for {silent:.0f} s" if silent > self._quiet_seconds else ""

    def _next_look(self) -> float:
        """When to look again, on the steady clock."""
        interval, looked_at = self._cadence.interval_seconds, self._looked_at
        if self._watch.has_new or any(state.woken for state in self._published.values()):
            return looked_at + min(_WOKEN_SECONDS, interval)
        if any(state.is_close(looked_at) for state in self._published.values()):
            return looked_at + min(self._cadence.close_seconds, interval)
        times = (state.at + interval for state in self._published.values())
        due = [at for at in times if at > looked_at]
        return min(due, default=looked_at + interval)

    # --- the broker ------------------------------------------------------------------------------
    async def _remember(self) -> None:
        """Durations are kept over a restart: they are in the last snapshots."""
        with suppress(BusError):
            await bounded.gather(self._remember_one, list(self._meters), _REMEMBER_AT_ONCE)

    async def _remember_one(self, pool: str) -> None:
        stored = await self._bus.last(
            self._subjects.snapshots_stream, self._subjects.pool_snapshot(pool)
        )
        with suppress(MalformedEvent):
            last = SNAPSHOTS.decode(stored.body) if stored else None
            if isinstance(last, PoolSnapshot):
                silent = (datetime.now(UTC) - last.at).total_seconds()
                self._meters[pool].remember(last, time.monotonic(), silent)

    def _broker_fails(self, error: BusError) -> None:
        if not self._broker_away:
            log.warning("measuring waits for the broker: %s", error)
        self._broker_away = True

    def _broker_answers(self) -> None:
        if self._broker_away:
            log.warning("the broker answers again: measuring goes on")
        self._broker_away = False


def _source_meter(settings: Settings, pool: Pool) -> SourceMeter | StreamMeter:
    kind = StreamMeter if pool.kind == "spark" else SourceMeter
    return kind(
        pool,
        settings.metrics.window_seconds,
        settings.metrics.interval_seconds,
    )


def _queues(pool: Pool) -> Iterator[Queue]:
    """However many queues a pool has, their lines cost it no more than eight look-ups a second."""
    for name in pool.queues:
        yield _queue(pool, name)


def _queue(pool: Pool, name: str) -> Queue:
    return Queue(
        name,
        patience_seconds=pool.profile.sla_seconds * _PATIENCE_SHARE,
        line_seconds=max(1.0, len(pool.queues) / 2),
    )
