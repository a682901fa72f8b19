"""The executor service: obeys commands, receives its workers' reports, publishes snapshots."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.bus.protocol import BusError, Outgoing, Stored
from penstock.config import Settings
from penstock.config.reloading import taken_over
from penstock.config.topology import pools
from penstock.events.envelope import Codec, MalformedEvent, encode
from penstock.events.scaling import WorkersScaled
from penstock.events.snapshot import HostSnapshot
from penstock.events.subjects import Subjects, check_name
from penstock.events.worker import WorkerReport, WorkerStuck
from penstock.executor.core.facts import BusChecked, Computing, Reported, Ticked
from penstock.executor.core.fleet import by_pool
from penstock.executor.drain_requests import DrainRequests
from penstock.executor.executor import Executor
from penstock.executor.gauges import Readings
from penstock.executor.host import lock
from penstock.executor.host.resources import UseMeter, host_size
from penstock.executor.outbox import Outbox
from penstock.executor.processes import become_subreaper, reap_strays
from penstock.executor.recovering.held_claims import Pulses
from penstock.executor.recovering.job_recovery import Recovery
from penstock.executor.recovering.memory_limits import MemoryLimits
from penstock.executor.recovering.recover_requests import RecoverRequests
from penstock.executor.recovering.returns import Returns
from penstock.executor.recovering.stuck_jobs import ROUND_SECONDS, StuckWatch
from penstock.executor.reloading.reloads import Reloads
from penstock.executor.spark import guard
from penstock.executor.spark.archives import keep_made
from penstock.executor.spark.host_spark import HostSpark
from penstock.executor.spark.leftovers import has_session
from penstock.executor.spark.orphans import SparkOrphans
from penstock.runtime import service_process
from penstock.runtime.epochs import ReachedEpoch
from penstock.runtime.paths import run_dir
from penstock.runtime.poison_messages import skipping_poison
from penstock.runtime.reloading import Reread
from penstock.runtime.service import Service
from penstock.runtime.tasks import within
from penstock.spark.sessions import address

log = logging.getLogger("penstock.executor")

_TICK_SECONDS = 1.0
_SNAPSHOT_GAP_SECONDS = 0.05
_LAST_WORDS_SECONDS = 3.0


def run(settings: Settings, reread: Reread | None = None) -> None:
    """The whole process, until SIGTERM. Ends its workers first, in order.

    Raises:
        HostTaken: another executor has this host's name here.
    """
    check_name("host", settings.host.name)
    # before the broker is looked for: living workers see that their executor is back
    held = lock.take(run_dir(settings), settings.host.name)
    try:
        service_process.run("executor", settings, body, reread=reread)
    finally:
        os.close(held)


async def body(running: Service) -> None:
    """The body of the service; the caller holds the host's lock."""
    await _Shell(running, run_dir(running.settings)).live()


class _Shell:
    """The loops around an executor, one for each source of facts."""

    def __init__(self, running: Service, folder: Path) -> None:
        self._running, self._bus, self._folder = running, running.bus, folder
        self._host = running.settings.host.name
        self._subjects = Subjects(running.settings.prefix)
        self._size = host_size()
        self._outbox = Outbox(self._bus, self._subjects)
        self._readings = Readings(running.meters)
        running.checks.require("snapshots", self._why_not_published)
        self._orphans = SparkOrphans(address(running.settings.spark))
        recovery = Recovery(self._bus, running.settings, running.source)
        self._executor = Executor(
            running.settings,
            folder,
            cpu_cores=self._size.cpu_cores,
            source=running.source,
            outbox=self._outbox,
            returns=Returns(self._bus, recovery),
            ended=self._orphans.ended,
            happened=self._readings.happened,
        )
        self._stuck = StuckWatch(self._executor, running.settings, recovery, self._announce_stuck)
        self._memory_limits = MemoryLimits(running.settings, self._executor.learn)
        self._pulses = Pulses(self._bus, folder, running.settings.jobs.claim_seconds)
        self._recover_requests = RecoverRequests(self._bus, self._subjects, self._host, self._stuck)
        self._drain_requests = DrainRequests(self._bus, self._subjects, self._host, self._executor)
        self._reloads = Reloads(
            self._bus,
            self._subjects,
            self._executor,
            folder,
            pools=pools(running.settings),
            spawn=running.spawn,
        )
        self._spark = HostSpark(folder, running.settings)
        self._meter = UseMeter(running.settings.host.count_other_cpu)
        self._kept = self._kept_for_jobs(running.settings)
        self._published_at: float | None = None
        self._commands = Codec(WorkersScaled)
        self._lease_epoch = ReachedEpoch(self._bus, self._subjects)
        self._reports = msgspec.json.Decoder(WorkerReport)
        running.on_new_settings(self._take_settings)

    async def live(self) -> None:
        """Adopts, obeys until asked to stop, then ends all workers."""
        executor, spawn = self._executor, self._running.spawn
        become_subreaper()
        executor.adopt()
        reports = await self._bus.listen(
            self._subjects.worker_report(self._host, "*"), self._on_report
        )
        executor.warm_parents.start(spawn)
        spawn(self._reloads.run(), "reloads")
        spawn(executor.spark_workers.run(self._bus), "spark-workers")
        if executor.spark_workers.pools:
            host = self._running.settings.host
            guarding = (self._folder, host.orphan_grace_seconds, host.drain_seconds)
            spawn(guard.keep(*guarding), "spark-guard")
        spawn(executor.foreign_workers.run(self._bus), "foreign-workers")
        spawn(executor.foreign_workers.guard(), "foreign-guard")
        spawn(self._spark.run(), "spark-supervisor")
        has_workers = executor.spark_workers.has_any
        used = {
            "daemon": has_workers,
            "executor": has_workers,
            "connect": lambda: self._spark.state == "running",
            "session": lambda: has_session(executor.processes.pids),
        }
        spawn(keep_made(used, executor.is_idle), "class archives")
        spawn(self._follow_commands(), "commands")
        spawn(self._outbox.run(), "outbox")
        spawn(self._publish_snapshots(), "snapshots")
        spawn(self._tick(), "tick")
        spawn(self._watch(), "stuck jobs")
        spawn(self._keep_claims(), "held claims")
        self._running.on_pause(executor.pause)
        self._running.on_reload(self._reloads.begin)
        requests = await self._recover_requests.open()
        reload_requests = await self._reloads.open()
        drain_requests = await self._drain_requests.open()
        try:
            await self._running.stopping.wait()
            if self._running.failure is None:  # else they live on, for the next executor to adopt
                await self._end()
        finally:
            with suppress(BusError):
                await reports.unsubscribe()
                await requests.unsubscribe()
                await reload_requests.unsubscribe()
                await drain_requests.unsubscribe()
            executor.close()

    async def _end(self) -> None:
        log.info("ending %d workers", len(self._executor.fleet.workers))
        # In this order: draining jobs still use Spark, and report their ends through the outbox.
        await self._executor.drain()
        await self._spark.stop()
        with suppress(BusError, TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                await self._publish_snapshot()
        await self._outbox.flush(_LAST_WORDS_SECONDS)

    def _take_settings(self, new: Settings) -> tuple[Settings, tuple[str, ...]]:
        """New settings; workers that were started with others are replaced."""
        merged, waiting = taken_over(self._running.settings, new)
        self._running.settings = merged
        self._executor.take_settings(merged)
        self._stuck.take_settings(merged)
        self._reloads.take_pools(pools(merged))
        self._kept = self._kept_for_jobs(merged)
        self._memory_limits.use(merged)
        self._meter.counts_other_cpu = merged.host.count_other_cpu
        return merged, waiting

    def _kept_for_jobs(self, settings: Settings) -> dict[str, int]:
        """By pool, the bytes beside a worker that are kept free for what its jobs start."""
        return {
            name: kept
            for name, pool in pools(settings).items()
            if (kept := pool.profile.kept_for_jobs(self._size.memory_bytes))
        }

    # --- what comes in ---------------------------------------------------------------------------
    async def _follow_commands(self) -> None:
        subject = self._subjects.command(self._host)
        while True:
            try:
                stream = self._subjects.commands_stream
                async for message in self._bus.follow(stream, [subject], start="last"):
                    with skipping_poison(f"command {message.sequence}"):
                        await self._obey(message)
            except BusError as error:
                log.error("cannot follow commands, trying again: %s", error)
            await asyncio.sleep(_TICK_SECONDS)

    async def _obey(self, message: Stored) -> None:
        try:
            command = self._commands.decode(message.body)
        except MalformedEvent as error:
            log.error("command %d is ignored: %s", message.sequence, error)
            return
        if isinstance(command, WorkersScaled):
            plan = self._executor.fleet.plan
            obeyed = plan.epoch if plan else None
            reached = await self._lease_epoch.before(command.epoch, obeyed)
            self._executor.command(command, message.headers, reached)
        else:
            log.error("command %d is ignored: expected WorkersScaled", message.sequence)

    def _on_report(self, subject: str, body: bytes) -> None:
        try:
            report = self._reports.decode(body)
        except (ValueError, RecursionError) as error:
            log.warning("a report on %s is ignored: %s", subject, error)
            return
        if subject != self._subjects.worker_report(self._host, report.worker):
            return
        with skipping_poison(f"a report of worker {report.worker}"):
            self._executor.learn(Reported(report=report))
            self._stuck.learn(report)
            self._orphans.learn(report)

    async def _tick(self) -> None:
        """For what is due without a fact to cause it: silence, calm, strays."""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self._executor.learn(Ticked())
            processes = self._executor.processes.by_worker
            self._memory_limits.look(self._executor.fleet.workers, processes, time.monotonic())
            awaited = {*self._executor.warm_parents.pids, self._spark.pid}
            reap_strays(awaited.union(self._executor.processes.pids))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            await self._stuck.look()

    async def _keep_claims(self) -> None:
        while True:
            await asyncio.sleep(self._pulses.look_seconds)
            workers = self._executor.processes.by_worker
            for worker in await self._pulses.look(workers.items(), time.monotonic()):
                self._executor.learn(Computing(worker=worker))

    def _announce_stuck(self, event: WorkerStuck) -> None:
        self._outbox.put(msgspec.structs.replace(event, source=self._running.source))

    # --- what goes out ---------------------------------------------------------------------------
    async def _publish_snapshots(self) -> None:
        """A snapshot each second, and at once when the workers change."""
        changed = self._executor.changed
        while True:
            changed.clear()
            try:
                await self._publish_snapshot()
                self._note_bus(True)
            except BusError as error:
                log.debug("snapshot not published: %s", error)
                self._note_bus(False)
            # Workers that start together change the figures many times within milliseconds.
            await asyncio.sleep(_SNAPSHOT_GAP_SECONDS)
            await within(_TICK_SECONDS - _SNAPSHOT_GAP_SECONDS, changed.wait())

    async def _publish_snapshot(self) -> None:
        subject, snapshot = self._subjects.host_snapshot(self._host), self._snapshot()
        await self._bus.append(Outgoing(subject, encode(snapshot)))
        self._published_at = time.monotonic()
        self._readings.published(snapshot)

    def _why_not_published(self) -> str:
        """Deciders take a host without snapshots as lost."""
        if self._published_at is None:
            return "no snapshot of this host was published yet"
        silent = time.monotonic() - self._published_at
        lost = silent > self._running.settings.host.lease_seconds
        return f"the last snapshot of this host was published {silent:.0f} s ago" if lost else ""

    def _note_bus(self, up: bool) -> None:
        if up != (self._executor.fleet.bus_up_since is not None):
            self._executor.learn(BusChecked(up=up))

    def _snapshot(self) -> HostSnapshot:
        fleet = self._executor.fleet
        executor = self._executor
        below = executor.spark_workers.pids(), executor.foreign_workers.pids()
        workers = [*executor.processes.pids, *(pid for pids in below for pid in pids)]
        use = self._meter.measure(workers, self._spark.pids(), self._kept_beside())
        epoch, version = fleet.plan.order if fleet.plan else (0, 0)
        return HostSnapshot(
            source=self._running.source,
            host=self._host,
            cpu_cores=self._size.cpu_cores,
            memory_bytes=self._size.memory_bytes,
            max_workers=fleet.limits.max_workers or None,
            epoch=epoch,
            version=version,
            pools=by_pool(fleet, time.monotonic()),
            draining=fleet.ending,
            spark=self._spark.state,
            reload_error=self._reloads.error,
            **msgspec.structs.asdict(use),
        )

    def _kept_beside(self) -> dict[int, int]:
        """By worker's process, the bytes that are kept free for what its jobs start."""
        pids = self._executor.processes.by_worker
        return {
            pids[name]: self._kept[worker.pool]
            for name, worker in self._executor.fleet.workers.items()
            if worker.pool in self._kept and name in pids
        }
