"""The executor's shell: facts go into the core, its instructions are carried out, all at once.

Everything here runs in one loop and nothing in `learn` awaits, so facts are handled one by one, in
the order in which they were learned.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from penstock import telemetry
from penstock.config import Settings
from penstock.config.foreign_pools import longest_drain_seconds
from penstock.config.topology import pools
from penstock.events.envelope import new_id, utc_now
from penstock.events.scaling import WorkersScaled
from penstock.events.worker import WorkerEvent, WorkerReady, WorkerStopped
from penstock.executor.core import facts, instruction
from penstock.executor.core.fleet import Fleet, ForeignLimits, Limits, by_pool, deadlines
from penstock.executor.core.reconcile import handle
from penstock.executor.core.started_with import digests
from penstock.executor.core.worker import Phase
from penstock.executor.foreign.workers import ForeignWorkers
from penstock.executor.outbox import Outbox
from penstock.executor.processes import Processes
from penstock.executor.recovering.held_claims import begun_jobs, held_claims, last_claim
from penstock.executor.recovering.returns import Returns
from penstock.executor.recovering.vitals import OomKills
from penstock.executor.reloading.warm_parents import WarmParents
from penstock.executor.spark.workers import SparkWorkers
from penstock.executor.spawn_spans import SpawnSpans
from penstock.executor.warm_parent import WarmParent
from penstock.runtime.tasks import within
from penstock.runtime.workers import record
from penstock.runtime.workers.assignment import Assignment

log = logging.getLogger("penstock.executor")

_SILENT_CLAIMS = 3
"""A worker that is silent for so many claim times, and at least 30 s, is replaced."""


class Executor:
    """One host's workers.

    Args:
        ended: called for each worker whose process has ended, with its exit code.
        happened: called with each event of a worker.

    Attributes:
        fleet: plan, workers and troubles now.
        changed: set when the workers by pool are not as last published.
        empty: set while no worker is left.
    """

    def __init__(
        self,
        settings: Settings,
        run_dir: Path,
        *,
        cpu_cores: float,
        source: str,
        outbox: Outbox,
        returns: Returns,
        ended: Callable[[str, int | None], None] = lambda *_: None,
        happened: Callable[[WorkerEvent], None] = lambda _: None,
    ) -> None:
        self._settings, self._run_dir, self._source = settings, run_dir, source
        self._cpu_cores = cpu_cores
        self._outbox, self._returns, self._on_ended = outbox, returns, ended
        self._happened = happened
        self._pools = pools(settings)
        self._digests = digests(settings)
        self._started_with: dict[str, str] = {}
        self._spans = SpawnSpans(settings.host.name)
        self._command: WorkersScaled | None = None
        self._command_headers: Mapping[str, str] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._oom_kills = OomKills()
        self._published: Any = None
        self.processes = Processes(self._exited)
        self.warm_parents = WarmParents(
            lambda: WarmParent(self._settings, self), lambda: self._settings.jobs.modules
        )
        self.spark_workers = SparkWorkers(settings, run_dir, self, self.processes)
        self.foreign_workers = ForeignWorkers(settings, run_dir, self, self.processes)
        self.changed, self.empty = asyncio.Event(), asyncio.Event()
        self.empty.set()
        self.fleet = Fleet(
            host=settings.host.name,
            instance=secrets.token_hex(4),
            limits=limits(settings, cpu_cores),
        )

    # --- facts -----------------------------------------------------------------------------------
    def learn(self, fact: facts.Fact) -> None:
        """Takes in a fact and does what follows from it."""
        now = time.monotonic()
        self._follow(*handle(self.fleet, fact, now), now)

    def _follow(
        self, fleet: Fleet, instructions: list[instruction.Instruction], now: float
    ) -> None:
        self.fleet = fleet
        for order in instructions:
            self._do(order)
        sets = by_pool(self.fleet, now)
        if instructions or sets != self._published:
            self._published = sets
            self.changed.set()
        (self.empty.clear if self.fleet.workers else self.empty.set)()
        self._wake_for_deadline(now)

    def command(
        self, command: WorkersScaled, headers: Mapping[str, str], reached: int | None = None
    ) -> None:
        """Takes in a command with the trace context that it came with; see `Commanded`."""
        now = time.monotonic()
        fact = facts.Commanded(command=command, reached=reached)
        fleet, instructions = handle(self.fleet, fact, now)
        if fleet.plan is not self.fleet.plan:  # it is obeyed
            self._command, self._command_headers = command, headers
        self._follow(fleet, instructions, now)

    def take_settings(self, settings: Settings) -> None:
        """New settings: what is planned of pools that were not known before is started now.

        Workers that were started with other ones are replaced, as after a reload of the code.
        """
        self._settings, self._pools = settings, pools(settings)
        self._digests = digests(settings)
        self.foreign_workers.take_settings(settings)
        planned = self._command.pools if self._command else {}
        new_limits = limits(settings, self._cpu_cores)
        self.learn(facts.LimitsChanged(limits=new_limits, commanded=planned))
        self._replace_outdated()

    def _replace_outdated(self) -> None:
        """Replaces workers that were started with other settings than those in force."""
        outdated = {
            name
            for name, worker in self.fleet.workers.items()
            if (digest := self._started_with.get(name))  # "": by an executor that kept none
            and digest != self._digests.get(worker.pool, digest)
        }
        if outdated:
            self.learn(facts.SettingsOutdated(workers=frozenset(outdated)))

    def adopt(self) -> None:
        """Takes over the workers that an earlier executor of this host left."""
        for left in record.living(self._run_dir):
            log.info("worker %s of pool %s (pid %d) is adopted", left.worker, left.pool, left.pid)
            self.processes.watch(left.worker, left.pid, left.start_ticks)
            self._started_with[left.worker] = left.started_with
            age = max(0.0, time.time() - left.started_at)
            if left.pool in self.spark_workers.pools:
                self.spark_workers.adopt(left)
            self.learn(
                facts.Adopted(
                    worker=left.worker,
                    pool=left.pool,
                    pid=left.pid,
                    age_seconds=age,
                    drain_seconds=self.foreign_workers.adopt(left),
                )
            )
        self._replace_outdated()

    def forked(self, worker: str, pid: int) -> None:
        self.processes.watch(worker, pid)
        self.learn(facts.Forked(worker=worker, pid=pid))

    def not_forked(self, worker: str, error: str) -> None:
        self._spans.failed(worker, error)
        self._started_with.pop(worker, None)
        self.learn(facts.ForkFailed(worker=worker, error=error))

    def exited(self, pid: int, code: int) -> None:
        self.processes.reaped(pid, code)

    def _exited(self, worker: str, code: int | None) -> None:
        self._on_ended(worker, code)
        self.spark_workers.ended(worker, code)
        self.foreign_workers.ended(worker, code)
        self.learn(
            facts.Exited(
                worker=worker,
                code=code,
                claim=last_claim(self._run_dir, worker),
                held=held_claims(self._run_dir, worker),
                begun=begun_jobs(self._run_dir, worker),
                out_of_memory=self._oom_kills.rose(),
            )
        )

    # --- instructions ----------------------------------------------------------------------------
    def _do(self, order: instruction.Instruction) -> None:
        match order:
            case instruction.Start():
                self._start(order)
            case instruction.Terminate():
                own = self.spark_workers.drain, self.foreign_workers.drain
                if not any(drain(order.worker) for drain in own):
                    self.processes.terminate(order.worker)
            case instruction.Kill():
                log.warning("worker %s did not end in time: killed", order.worker)
                end = self.spark_workers.kill, self.foreign_workers.kill
                if not any(kill(order.worker) for kill in end):
                    self.processes.kill(order.worker)
            case instruction.Pause():
                self.processes.signal(order.worker, signal.SIGUSR1)
            case instruction.Resume():
                self.processes.signal(order.worker, signal.SIGUSR2)
            case instruction.GiveBack():
                self._returns.give_back(
                    order.ack_subjects,
                    order.worker,
                    order.job_ids,
                    ran=order.ran,
                    ended=order.ended,
                )
            case instruction.Forget():
                record.remove(self._run_dir, order.worker)
                self._started_with.pop(order.worker, None)
            case instruction.Announce():
                self._announce(order.event)
            case instruction.Note():
                log.warning("%s", order.text)

    def _start(self, start: instruction.Start) -> None:
        assignment = self._assignment(start)
        if start.pool in self.spark_workers.pools:
            self.spark_workers.start(start.worker, start.pool)
            return
        self._started_with[start.worker] = assignment.started_with
        if self.foreign_workers.takes(start.pool):
            self.foreign_workers.start(start.worker, start.pool, assignment.started_with)
        else:
            self.warm_parents.fork(assignment)

    def _assignment(self, start: instruction.Start) -> Assignment:
        commanded_at = time.time() - (time.monotonic() - start.commanded_at)
        parent = self._command_headers if start.cause == "planned" else {}
        return Assignment(
            worker=start.worker,
            host=self.fleet.host,
            pool=start.pool,
            queues=self._pools[start.pool].queues,
            run_dir=str(self._run_dir),
            settings=_for_workers(self._settings),
            started_with=self._digests[start.pool],
            commanded_at=commanded_at,
            together=start.together,
            cause=start.cause,
            headers=self._spans.begin(start.worker, start.pool, parent, commanded_at),
        )

    def _announce(self, blank: WorkerEvent) -> None:
        planned = getattr(blank, "cause", "") in {"planned", "scaled-down"}
        event = replace(
            blank,
            id=new_id(),
            at=utc_now(),
            source=self._source,
            causation_id=self._command.id if planned and self._command else None,
        )
        with telemetry.within(self._spans.headers(event.worker)):
            log.info("%s", _line(event))
        match event:
            case WorkerReady():
                self._spans.ready(event.worker, event.spawn_seconds)
            case WorkerStopped():
                self._spans.failed(event.worker, event.cause)
        self._happened(event)
        self._outbox.put(event)

    # --- time ------------------------------------------------------------------------------------
    def _wake_for_deadline(self, now: float) -> None:
        """Looks again when the next deadline passes."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        due = min((at for at in deadlines(self.fleet) if at > now), default=None)
        if due is not None:
            loop = asyncio.get_running_loop()
            # A millisecond late: a timer that fires early by its clock would find nothing due.
            self._timer = loop.call_later(due - now + 0.001, self.learn, facts.Ticked())

    def is_idle(self) -> bool:
        """Whether no worker of this host runs a job."""
        return all(worker.phase is not Phase.BUSY for worker in self.fleet.workers.values())

    def close(self) -> None:
        """Stops looking; living workers stay as they are."""
        if self._timer:
            self._timer.cancel()
        self.processes.close()

    def pause(self, paused: bool) -> None:
        """Starts no workers and has the living ones take no jobs; or lets all go on."""
        self.learn(facts.PauseRequested(paused=paused))

    async def drain(self) -> None:
        """Ends all workers: TERM, the drain deadline, KILL. Returns when none is left."""
        self.learn(facts.EndRequested())
        seconds = (worker.drain_seconds or 0.0 for worker in self.fleet.workers.values())
        longest = max(longest_drain_seconds(self._settings), *seconds, 0.0)
        await within(longest + 10.0, self.empty.wait())
        await within(longest + 10.0, self.foreign_workers.settled())


def limits(settings: Settings, cpu_cores: float) -> Limits:
    """The limits of the settings, as the core takes them.

    Args:
        cpu_cores: those that may be used here.
    """
    host, tables = settings.host, pools(settings)
    return Limits(
        pools=frozenset(tables),
        costly=frozenset(
            name for name, pool in tables.items() if pool.kind == "spark" or pool.is_foreign
        ),
        foreign={
            name: ForeignLimits(drain_seconds=pool.drain.seconds, ready_seconds=pool.ready_seconds)
            for name, pool in tables.items()
            if pool.is_foreign
        },
        costly_starts=max(1, round(cpu_cores)),
        parallel_starts=host.max_parallel_starts or max(2, round(2 * cpu_cores)),
        max_workers=host.max_workers,
        drain_seconds=host.drain_seconds,
        silent_seconds=max(30.0, _SILENT_CLAIMS * settings.jobs.claim_seconds),
    )


def _line(event: WorkerEvent) -> str:
    """An event as a line of the log."""
    left_out = {"id", "at", "source", "causation_id", "correlation_id", "host", "worker", "pool"}
    values = {
        name: value
        for name in event.__struct_fields__
        if name not in left_out and (value := getattr(event, name)) is not None
    }
    details = " ".join(f"{name}={value}" for name, value in values.items())
    return f"{event.name} {event.worker} of {event.pool}: {details}"


def _for_workers(settings: Settings) -> Settings:
    """The settings of workers, which connect with a seed of their own, where there is one."""
    if not (seed := settings.nats.worker_nkey_file):
        return settings
    nats = replace(settings.nats, nkey_file=seed, worker_nkey_file="")
    return replace(settings, nats=nats)
