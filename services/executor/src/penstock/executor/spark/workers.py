"""This host's Spark Workers: daemons that give cores and memory to a Spark cluster.

To the executor's core they are workers like others. A job worker reports itself; for these the
reports are made here: a Worker is ready when its Master knows it, and busy while tasks run in its
executors. It ends gently: it is decommissioned, so that no new task comes, tasks finish and blocks
move; when its last executor has gone it gets TERM, and at the drain deadline TERM and KILL.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from penstock.bus.protocol import Bus, BusError
from penstock.config import Pool, Settings
from penstock.config.topology import pools
from penstock.events.subjects import Subjects
from penstock.events.worker import WorkerReport
from penstock.executor.processes import Processes
from penstock.executor.spark import leftovers, standalone
from penstock.executor.spark.executors import SparkExecutor, active_tasks, executors_below
from penstock.executor.spark.java import SparkMissing, find_spark
from penstock.executor.spark.standalone import Offer
from penstock.runtime import children
from penstock.runtime.tasks import Tasks, within
from penstock.runtime.workers import record
from penstock.spark.class_archive import Archive
from penstock.spark.master import Master, MasterAway, View, address, ui_url

log = logging.getLogger("penstock.executor")

ROUND_SECONDS = 1.0
CLOSE_SECONDS = 0.1
"""Between looks while one of them is starting or ending."""
_UNUSED_SECONDS = 0.5
"""A Master that has an application for a Worker starts an executor there much sooner."""
_LAUNCH_SECONDS = 15.0
"""An executor takes 2 to 4 s to start; one that no application reports is not awaited longer."""
_UNKNOWN_SECONDS = 20.0
"""One that an answering Master does not know for so long is no longer vouched for."""
_TERM_SECONDS = 3.0
"""From TERM to KILL: a Worker needs 0.4 s to end."""


class Listener(Protocol):
    """Is notified what became of a start."""

    def forked(self, worker: str, pid: int) -> None: ...

    def not_forked(self, worker: str, error: str) -> None: ...


class Daemon:
    """One Worker and what was last seen of it.

    Args:
        child: the process, where this executor started it.

    Attributes:
        alive_at: when the Master first had it ALIVE, monotonic seconds.
        missed_at: since when the Master has not.
        ready: it could take a task: the Master knows it, and what it starts there at once is up.
        executors: of applications, running in it.
        active: tasks in each of them; None: not known.
        leaving: it was asked to take no further tasks.
        is_due: its end at the drain deadline is set.
        is_free: the Master gives it no further executors.
    """

    def __init__(
        self,
        offer: Offer,
        folder: Path,
        pid: int,
        child: children.Child | None = None,
        started_at: float = 0.0,
    ) -> None:
        self.offer, self.folder, self.pid, self.child = offer, folder, pid, child
        self.started_at = started_at or time.time()
        self.number = 0
        self.ready = False
        self.alive_at: float | None = None
        self.missed_at: float | None = None
        self.executors: tuple[SparkExecutor, ...] = ()
        self.active: tuple[int | None, ...] = ()
        self.leaving = self.is_due = self.is_free = False

    @property
    def state(self) -> str:
        """As in a `WorkerReport`."""
        if self.leaving:
            return "draining"
        if not self.ready:
            return "starting"
        return "idle" if all(tasks == 0 for tasks in self.active) else "busy"

    def mirror(self, view: View, now: float) -> None:
        """Takes over what the Master reports of it, found by the address of its resource."""
        name = f"{self.offer.name}/0"
        entries = [
            w for w in view.workers if any(name in r.addresses for r in w.resources.values())
        ]
        alive = any(worker.state == "ALIVE" for worker in entries)
        self.leaving = self.leaving or any(worker.state == "DECOMMISSIONED" for worker in entries)
        self.is_free = not alive
        if alive:
            self.alive_at = now if self.alive_at is None else self.alive_at
            self.missed_at = None
        elif self.missed_at is None:
            self.missed_at = now

    def settle(self, now: float) -> None:
        """Whether it is ready by now; once it was, it stays so."""
        if self.ready or self.alive_at is None:
            return
        waited = now - self.alive_at
        unused = not self.executors and waited >= _UNUSED_SECONDS
        is_up = any(tasks is not None for tasks in self.active)
        self.ready = unused or is_up or waited >= _LAUNCH_SECONDS

    def is_lost(self, now: float) -> bool:
        """It was there, and an answering Master has not known it for long."""
        missed_at = self.missed_at
        return self.ready and missed_at is not None and now - missed_at > _UNKNOWN_SECONDS


class SparkWorkers:
    """Starts, watches and ends them.

    Attributes:
        pools: names of the pools whose workers these are.
    """

    def __init__(
        self, settings: Settings, run_dir: Path, listener: Listener, processes: Processes
    ) -> None:
        self._settings, self._run_dir = settings, run_dir
        self._folder = run_dir / leftovers.FOLDER
        self._listener, self._processes = listener, processes
        self._pools = {name: p for name, p in pools(settings).items() if p.kind == "spark"}
        self.pools = frozenset(self._pools)
        self._secret = standalone.read_secret(settings.cluster.secret_file) if self.pools else ""
        self._address = address(settings.cluster)
        self._master = Master(ui_url(settings.cluster))
        self._subjects = Subjects(settings.prefix)
        self._daemons: dict[str, Daemon] = {}
        self._tasks = Tasks()
        self._archives: tuple[Archive, Archive] | None = None
        self._flags: tuple[str, ...] = ()
        self._executor_flags: tuple[str, ...] = ()
        self._soon = asyncio.Event()
        self._away = False

    # --- orders ----------------------------------------------------------------------------------
    def start(self, worker: str, pool: str) -> None:
        """Starts one; the listener is notified a moment later."""
        asyncio.get_running_loop().call_soon(self._start, worker, pool)

    def adopt(self, left: record.Record) -> None:
        """Goes on with one that an earlier executor of this host started."""
        pool = self._pools[left.pool]
        offer, folder = self._offer(left.worker, pool), self._folder / left.worker
        self._daemons[left.worker] = Daemon(offer, folder, left.pid, started_at=left.started_at)

    def drain(self, worker: str) -> bool:
        """Has one end gently; False when it is none of these."""
        daemon = self._daemons.get(worker)
        if daemon is None:
            return False
        daemon.leaving = daemon.is_due = True
        self._processes.signal(worker, signal.SIGPWR)
        self._processes.signal(worker, signal.SIGCONT)  # a stopped one would not handle it
        self._soon.set()
        return True

    def kill(self, worker: str) -> bool:
        """Ends one now, its executors with it; False when it is none of these."""
        if worker not in self._daemons:
            return False
        self._processes.terminate(worker)
        asyncio.get_running_loop().call_later(_TERM_SECONDS, self._processes.kill, worker)
        return True

    def ended(self, worker: str, code: int | None) -> None:
        """Its process is gone: so is what it kept on disk."""
        daemon = self._daemons.pop(worker, None)
        if daemon is None:
            return
        if child := daemon.child:
            if code and not daemon.leaving:
                log.error("Spark Worker %s ended: %s\n%s", worker, code, child.last_words())
            self._tasks.spawn(child.stop(0.0))
        shutil.rmtree(daemon.folder, ignore_errors=True)

    def has_any(self) -> bool:
        return bool(self._daemons)

    def pids(self) -> list[int]:
        """Of the executors in them, at the last look."""
        return [executor.pid for daemon in self._daemons.values() for executor in daemon.executors]

    def _clear(self) -> None:
        """Ends Workers that were started in the instant in which their executor died."""
        leftovers.send(self._run_dir, signal.SIGKILL, lambda pid: pid not in self._pids())
        for folder in self._folder.glob("*"):
            if folder.name not in self._daemons:
                shutil.rmtree(folder, ignore_errors=True)

    def _pids(self) -> set[int]:
        return {daemon.pid for daemon in self._daemons.values()}

    # --- the loop --------------------------------------------------------------------------------
    async def run(self, bus: Bus) -> None:
        """Looks and reports, without end; at once where no pool is of this kind."""
        if not self.pools:
            return
        self._clear()
        reported_at = 0.0
        while True:
            # While a Worker starts or ends it is looked at ten times a second; reports, and what
            # is asked of drivers, keep their second.
            full = time.monotonic() - reported_at >= ROUND_SECONDS
            before = {name: daemon.state for name, daemon in self._daemons.items()}
            if self._daemons:
                await self._look(full)
            if full:
                reported_at = time.monotonic()
                await self._refresh_flags()
            await self._report(
                bus,
                [d for name, d in self._daemons.items() if full or d.state != before.get(name)],
            )
            self._soon.clear()
            await within(CLOSE_SECONDS if self._is_moving else ROUND_SECONDS, self._soon.wait())

    @property
    def _is_moving(self) -> bool:
        return any(d.leaving or not d.ready for d in self._daemons.values())

    async def _look(self, full: bool) -> None:
        """1 what the Master reports; 2 what runs in them; 3 which are ready; 4 ends the drained."""
        daemons = dict(self._daemons)
        view = await asyncio.to_thread(self._view)
        pids = {name: daemon.pid for name, daemon in daemons.items()}
        below = await asyncio.to_thread(executors_below, pids)
        if full or any(below[name] and not daemon.ready for name, daemon in daemons.items()):
            active = await asyncio.to_thread(active_tasks, self._master, below)
            for name, daemon in daemons.items():
                daemon.active = active[name]
        for name, daemon in daemons.items():
            daemon.executors = below[name]
            if view:
                daemon.mirror(view, time.monotonic())
            daemon.settle(time.monotonic())
            if daemon.leaving and not daemon.is_due:
                self._end_in_time(daemon)
            if daemon.leaving and not daemon.executors and (daemon.is_free or view is None):
                self._processes.terminate(name)

    def _end_in_time(self, daemon: Daemon) -> None:
        """An operator, or an earlier executor, had it decommissioned."""
        daemon.is_due = True
        seconds = self._settings.host.drain_seconds
        asyncio.get_running_loop().call_later(seconds, self.kill, daemon.offer.name)

    def _view(self) -> View | None:
        try:
            view = self._master.view()
        except MasterAway as error:
            if not self._away:
                log.warning("the Spark Master does not answer: %s", error)
            self._away = True
            return None
        self._away = False
        return view

    async def _report(self, bus: Bus, daemons: Iterable[Daemon]) -> None:
        host, now = self._settings.host.name, time.time()
        for daemon in daemons:
            if daemon.is_lost(time.monotonic()):
                continue
            daemon.number += 1
            report = WorkerReport(
                worker=daemon.offer.name,
                host=host,
                pool=daemon.offer.resource,
                pid=daemon.pid,
                state=daemon.state,
                stopping_because="asked to end" if daemon.leaving else "",
                number=daemon.number,
                at=now,
                started_at=daemon.started_at,
            )
            subject = self._subjects.worker_report(host, daemon.offer.name)
            try:
                await bus.signal(subject, msgspec.json.encode(report))
            except BusError as error:
                log.debug("Spark Worker %s: its report is not sent: %s", daemon.offer.name, error)

    # --- one start -------------------------------------------------------------------------------
    def _start(self, worker: str, pool: str) -> None:
        try:
            daemon = self._begin(worker, pool)
        except (SparkMissing, children.ChildFailed, OSError) as error:
            self._listener.not_forked(worker, str(error))
            return
        self._daemons[worker] = daemon
        self._processes.watch(worker, daemon.pid)
        self._soon.set()
        self._listener.forked(worker, daemon.pid)

    def _begin(self, worker: str, pool: str) -> Daemon:
        spark, cluster, wanted = find_spark(), self._settings.cluster, self._pools[pool]
        offer, folder = self._offer(worker, wanted), self._folder / worker
        standalone.write_worker(spark, folder, cluster.interface, self._address, offer, self._flags)
        child = children.start(
            spark.command(folder),
            name=f"Spark Worker {worker}",
            log=folder / "worker.log",
            env={
                **standalone.environment(spark, folder, cluster.interface, self._secret),
                # read by executors; the Worker's own flags go before it
                "JDK_JAVA_OPTIONS": " ".join(self._executor_flags),
            },
            parent_death_signal=0,  # it works on; another executor adopts it, or the guard ends it
        )
        try:
            record.write(self._run_dir, worker, pool, time.time(), child.pid)
        except OSError:  # unknown to the next executor: it must not stay
            self._tasks.spawn(child.stop(0.0))
            raise
        return Daemon(offer, folder, child.pid, child)

    def _offer(self, worker: str, pool: Pool) -> Offer:
        return Offer(worker, pool.name, pool.slots, pool.slots * pool.slot_memory_bytes)

    async def _refresh_flags(self) -> None:
        """An archive may have been made, or removed; where it would be is found out once."""
        with suppress(SparkMissing):
            self._flags, self._executor_flags = await asyncio.to_thread(self._read_flags)

    def _read_flags(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """For Workers, and for the executors in them."""
        if self._archives is None:
            spark = find_spark()
            self._archives = spark.archive("daemon"), spark.archive("executor")
        daemon, executor = self._archives
        return daemon.flags, executor.flags
