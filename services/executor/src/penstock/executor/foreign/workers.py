"""This host's workers of other systems: consumers that are run as they are.

To the executor's core they are workers like others. A job worker reports itself; for these the
reports are made here: one is ready when the sign that its pool names was seen, and busy while it
uses its processor. It ends by its own system's signal, at which it finishes the message that it
handles; once its time for that is over it gets a second signal, and KILL five seconds later.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec.structs import replace

from penstock.bus.protocol import Bus, BusError
from penstock.config import Pool, Settings
from penstock.config.foreign import USUAL_VARIABLES, argv, signal_number
from penstock.config.foreign_pools import KILL_SECONDS
from penstock.config.topology import pools
from penstock.events.subjects import Subjects
from penstock.executor.core.facts import Fact, LimitReached
from penstock.executor.foreign import guard, kept, leftovers, output
from penstock.executor.foreign.consumer import Consumer
from penstock.executor.foreign.kept import Kept
from penstock.executor.foreign.output import Output
from penstock.executor.foreign.readiness import SlowPattern
from penstock.executor.processes import Processes
from penstock.runtime import children
from penstock.runtime.tasks import Tasks, within
from penstock.runtime.workers import record

log = logging.getLogger("penstock.executor")

ROUND_SECONDS = 1.0
CLOSE_SECONDS = 0.1
"""Between looks while one of them starts, or what one left behind is ended."""


class Listener(Protocol):
    """Is notified what became of a start, and of what was seen."""

    def forked(self, worker: str, pid: int) -> None: ...

    def not_forked(self, worker: str, error: str) -> None: ...

    def learn(self, fact: Fact) -> None: ...


class ForeignWorkers:
    """Starts, watches and ends them."""

    def __init__(
        self, settings: Settings, run_dir: Path, listener: Listener, processes: Processes
    ) -> None:
        self._run_dir, self._listener, self._processes = run_dir, listener, processes
        self._subjects = Subjects(settings.prefix)
        self._consumers: dict[str, Consumer] = {}
        self._tasks = Tasks()
        self._endings = Tasks()
        self._soon, self._any = asyncio.Event(), asyncio.Event()
        self.take_settings(settings)

    def take_settings(self, settings: Settings) -> None:
        """New settings: for those that start from now on, and for the limits of all."""
        self._settings = settings
        self._pools = {name: pool for name, pool in pools(settings).items() if pool.is_foreign}

    # --- orders ----------------------------------------------------------------------------------
    def takes(self, pool: str) -> bool:
        """Whether the workers of a pool are of this kind."""
        return pool in self._pools

    def start(self, worker: str, pool: str, started_with: str) -> None:
        """Starts one; the listener is notified a moment later.

        Args:
            started_with: a digest of the settings that it is started with.
        """
        asyncio.get_running_loop().call_soon(self._start, worker, pool, started_with)

    def adopt(self, left: record.Record) -> float | None:
        """Goes on with one that an earlier executor started, also of a pool that is gone.

        Returns:
            How long it may take to end, in seconds; None where it is none of these.
        """
        state = kept.read(self._run_dir, left.worker)
        if state is None:
            return None
        pool = self._pools.get(left.pool)
        consumer = Consumer(left.worker, left.pool, left.pid, state, self._output(left))
        consumer.watch_for(pool, self._settings.host.name, left.started_at)
        self._add(consumer)
        if state.drain_until is not None:  # its last executor asked it to end
            self.kill(left.worker)
        return state.drain.seconds

    def drain(self, worker: str) -> bool:
        """Asks one to end, once; False when it is none of these."""
        consumer = self._consumers.get(worker)
        if consumer is None:
            return False
        if not consumer.leaving:
            drain = consumer.kept.drain
            consumer.keep(self._run_dir, drain_until=time.monotonic() + drain.seconds)
            self._processes.signal(worker, signal_number(drain.signal))
            self._processes.signal(worker, signal.SIGCONT)  # a stopped one would not handle it
            self._soon.set()
        return True

    def kill(self, worker: str) -> bool:
        """Ends one as soon as its time is over; False when it is none of these."""
        consumer = self._consumers.get(worker)
        if consumer is None:
            return False
        until, now = consumer.kept.drain_until, time.monotonic()
        loop = asyncio.get_running_loop()
        if until is None or until <= now:
            self._processes.signal(worker, signal_number(consumer.kept.drain.then))
            self._processes.signal(worker, signal.SIGCONT)
            loop.call_later(KILL_SECONDS, self._kill_all, consumer)
        else:
            loop.call_later(until - now, self.kill, worker)
        return True

    def _kill_all(self, consumer: Consumer) -> None:
        """The process, and what it started; what left its process group is ended with its end."""
        if self._consumers.get(consumer.name) is consumer:
            self._processes.kill(consumer.name)

    def ended(self, worker: str, code: int | None) -> None:
        """Its process is gone: what it started may finish, and must not stay."""
        consumer = self._consumers.pop(worker, None)
        if consumer is None:
            return
        if child := consumer.child:
            self._tasks.spawn(child.stop(0.0))
        if not consumer.leaving:
            words = "\n".join(consumer.output.last_lines())
            log.error("worker %s ended by itself (%s); its output ends:\n%s", worker, code, words)
        self._endings.spawn(self._end_leftovers(worker))

    def pids(self) -> list[int]:
        """Of what they have started, at the last look."""
        return [pid for consumer in self._consumers.values() for pid in consumer.below]

    # --- the loop --------------------------------------------------------------------------------
    async def run(self, bus: Bus) -> None:
        """Looks and reports, without end."""
        self._clear()
        reported_at = 0.0
        while True:
            full = time.monotonic() - reported_at >= ROUND_SECONDS
            before = {name: consumer.state for name, consumer in self._consumers.items()}
            consumers = [c for c in self._consumers.values() if full or c.state == "starting"]
            if consumers:
                await asyncio.to_thread(_look, consumers, full)
            if full:
                reported_at = time.monotonic()
                self._enforce_limits()
            for consumer in consumers:
                self._see_printed(consumer)
                if consumer.is_ready and not consumer.kept.ready:
                    consumer.keep(self._run_dir, ready=True)
            changed = [c for n, c in self._consumers.items() if full or c.state != before.get(n)]
            await self._report(bus, changed)
            self._soon.clear()
            is_moving = any(c.state == "starting" for c in self._consumers.values())
            await within(CLOSE_SECONDS if is_moving else ROUND_SECONDS, self._soon.wait())

    def _see_printed(self, consumer: Consumer) -> None:
        try:
            consumer.see_printed()
        except SlowPattern:
            log.error(
                "worker %s: its output takes too long to compare with 'ready' of pool %s: the "
                "pattern backtracks (as '(a+)+' does): write it without nested repetitions; the "
                "worker counts as not ready", consumer.name, consumer.pool,
            )  # fmt: skip

    async def guard(self) -> None:
        """Keeps a guard beside this process from the first of them on."""
        await self._any.wait()
        await guard.keep(self._run_dir, self._settings.host.orphan_grace_seconds)

    def _enforce_limits(self) -> None:
        now = time.time()
        for consumer in tuple(self._consumers.values()):
            pool = self._pools.get(consumer.pool)
            if pool and (detail := consumer.beyond(pool.profile, now)):
                self._listener.learn(LimitReached(worker=consumer.name, detail=detail))

    async def _report(self, bus: Bus, consumers: Iterable[Consumer]) -> None:
        """A stopped one is silent, as a worker of our own would be, and is replaced in time."""
        host, now = self._settings.host.name, time.time()
        for consumer in consumers:
            if consumer.is_stopped and not consumer.leaving:
                continue
            pool = self._pools.get(consumer.pool)
            report = consumer.report(host, pool.slots if pool else 1, now)
            subject = self._subjects.worker_report(host, consumer.name)
            try:
                await bus.signal(subject, msgspec.json.encode(report))
            except BusError as error:
                log.debug("worker %s: its report is not sent: %s", consumer.name, error)

    # --- what was left behind --------------------------------------------------------------------
    def _clear(self) -> None:
        """Ends what was started in the instant in which its executor died, and what it started."""
        left = {*leftovers.running(self._run_dir), *kept.names(self._run_dir)}
        for worker in left.difference(self._consumers):
            self._endings.spawn(self._end_leftovers(worker))

    async def settled(self) -> None:
        """Returns when nothing is left of those that have ended."""
        await self._endings.wait()

    async def _end_leftovers(self, worker: str) -> None:
        ending = leftovers.Ending(self._run_dir, worker)
        while True:
            running = await asyncio.to_thread(leftovers.running, self._run_dir)
            if ending.step(running.get(worker, set())):
                return
            await asyncio.sleep(CLOSE_SECONDS)

    # --- one start -------------------------------------------------------------------------------
    def _start(self, worker: str, name: str, started_with: str) -> None:
        pool = self._pools.get(name)
        try:
            if pool is None:
                raise children.ChildFailed("its pool is no longer in the settings")
            consumer = self._begin(worker, pool, started_with)
        except (children.ChildFailed, OSError) as error:
            # one that runs, but could not be recorded, may handle a message by now
            self._endings.spawn(self._end_leftovers(worker))
            self._listener.not_forked(worker, str(error))
            return
        self._add(consumer)
        self._processes.watch(worker, consumer.pid)
        self._soon.set()
        self._listener.forked(worker, consumer.pid)

    def _begin(self, worker: str, pool: Pool, started_with: str) -> Consumer:
        state, printed = Kept(drain=pool.drain), Output(self._run_dir, pool.name, worker)
        host, started_at = self._settings.host.name, time.time()
        printed.begin()
        output.prune(self._run_dir, pool.name, frozenset(self._consumers))
        kept.write(self._run_dir, worker, state)
        child = children.start(
            argv(pool.command, queues=pool.source_queues, worker=worker, host=host, pool=pool.name),
            name=f"worker {worker}",
            log=printed.path,
            environment=variables(pool.environment, os.environ),
            env=leftovers.mark(self._run_dir, worker),
            parent_death_signal=0,  # it works on; another executor adopts it, or the guard ends it
        )
        with suppress(OSError):  # it has ended
            os.setpriority(os.PRIO_PROCESS, child.pid, pool.profile.nice)
        kept.write(self._run_dir, worker, state := replace(state, pid=child.pid))
        record.write(
            self._run_dir, worker, pool.name, started_at, child.pid, started_with=started_with
        )
        consumer = Consumer(worker, pool.name, child.pid, state, printed, child)
        consumer.watch_for(pool, host, started_at)
        return consumer

    def _add(self, consumer: Consumer) -> None:
        self._consumers[consumer.name] = consumer
        self._any.set()

    def _output(self, left: record.Record) -> Output:
        return Output(self._run_dir, left.pool, left.worker)


def variables(named: Iterable[str], present: Mapping[str, str]) -> dict[str, str]:
    """The variables that a process gets.

    Args:
        named: those of its pool: names, or ``PREFIX_*``.
        present: of this process.
    """
    patterns = (*USUAL_VARIABLES, *named)
    exact = {pattern for pattern in patterns if not pattern.endswith("*")}
    prefixes = tuple(pattern[:-1] for pattern in patterns if pattern.endswith("*"))
    return {
        name: value for name, value in present.items() if name in exact or name.startswith(prefixes)
    }


def _look(consumers: Iterable[Consumer], full: bool) -> None:
    for consumer in consumers:
        consumer.look(time.time(), time.monotonic(), full)
