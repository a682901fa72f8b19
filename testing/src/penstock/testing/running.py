"""Running what waits: the real worker, and the orchestrator's batches, graphs, schedules, hooks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from penstock.bus.protocol import Stored, broker_time
from penstock.config import Settings
from penstock.config.profiles import PoolTable
from penstock.config.serving import serving
from penstock.events.subjects import Subjects
from penstock.events.worker import WorkerReport
from penstock.jobs import Client
from penstock.jobs.queues import queue_messages
from penstock.jobs.schedules import schedule
from penstock.measuring.job_series import JobSeries
from penstock.orchestrator.core.unresolved import Unresolved
from penstock.orchestrator.hooks.runner import HookRunner
from penstock.orchestrator.reconciling import transitions
from penstock.orchestrator.reconciling.reconciler import Reconciler
from penstock.orchestrator.scheduling.ticker import Ticker
from penstock.orchestrator.workflows.suspended.suspended_workflows import SuspendedWorkflows
from penstock.orchestrator.workflows.tracker import WorkflowTracker
from penstock.runtime.workers.assignment import Assignment
from penstock.testing.crashing import Crash, MortalBus
from penstock.testing.memory.bus import MemoryBus
from penstock.testing.spark import NotAsked
from penstock.worker.app import without_executor
from penstock.worker.loop import Worker
from penstock.worker.parts import WorkerParts, assemble

_LOOK_SECONDS = 0.002
_RECONCILED_AFTER_SECONDS, _RECONCILED_TIMES, _MOST_UNRESOLVED = 10.0, 3, 100_000
_PATIENCE = timedelta(seconds=1.1)
"""The orchestrator waits a second here and there for what may still come; here nothing will."""


class _Serving(NamedTuple):
    """One worker."""

    bus: MemoryBus
    parts: WorkerParts
    worker: Worker
    task: asyncio.Task[None]


class Run:
    """One call of `run_pending`.

    Args:
        run_dir: where the Spark supervisor listens; empty for none.
        series: takes what the jobs record in metrics of their own.
        crash: when a worker is to be killed; None for never.
        move_time: moves the broker's time forward, by seconds.
    """

    def __init__(
        self,
        bus: MemoryBus,
        settings: Settings,
        run_dir: str,
        series: JobSeries,
        crash: Crash | None,
        move_time: Callable[[float], None],
    ) -> None:
        self._series, self._crash, self._move_time = series, crash, move_time
        self._to_reconcile = 0
        self._bus, self._subjects = bus, Subjects(settings.prefix)
        # no other worker could know a job that the one of the queue does not
        jobs = replace(settings.jobs, unknown_after_seconds=0.0)
        self._settings, self._run_dir = replace(settings, jobs=jobs), run_dir
        client = Client.over(bus.client(), settings, "testing")
        self._cron = client.schedules
        self._ticker = Ticker(bus.client(), self._subjects, "testing")
        self._workflows = WorkflowTracker(bus.client(), self._subjects, client, now=self._later)
        self._suspended = SuspendedWorkflows(bus.client(), self._subjects, client)
        job_hooks = {name: hook for name, hook in settings.hooks.items() if hook.job}
        hook_jobs = frozenset(hook.job for hook in job_hooks.values())
        self._hooks = [
            HookRunner(name, hook, bus.client(), client, self._subjects, hook_jobs=hook_jobs)
            for name, hook in job_hooks.items()
        ]
        self._workers: dict[str, _Serving] = {}

    async def until_idle(self, timeout_seconds: float) -> int:
        """See :meth:`penstock.testing.Bench.run_pending`."""
        before = self._started()
        for hook in self._hooks:
            await hook.begin(first=1)
        background = [
            asyncio.create_task(work)
            for work in (
                self._workflows.follow(),
                self._suspended.follow(),
                self._ticker.follow(),
                self._ticker.run(),
                *(hook.follow(lambda: True) for hook in self._hooks),
            )
        ]
        reports = await self._bus.client().listen(
            self._subjects.worker_report("*", "*"), self._on_report
        )
        try:
            await self._turn(time.monotonic() + timeout_seconds)
        finally:
            await self._stop()
            await reports.unsubscribe()
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
        return self._started() - before

    def _on_report(self, _: str, body: bytes) -> None:
        for series in msgspec.json.decode(body, type=WorkerReport).series:
            self._series.merge(series)

    async def _turn(self, deadline: float) -> None:
        while await self._moves():
            if time.monotonic() > deadline:
                raise TimeoutError(f"jobs still run or wait: {', '.join(self._unfinished())}")
            await asyncio.sleep(_LOOK_SECONDS)

    async def _moves(self) -> bool:
        """Whether anything runs, waits, or was set going just now."""
        await self._bury_the_dead()
        for worker in self._workers.values():
            if worker.task.done():
                worker.task.result()
        waiting = self._waiting()
        for queue in waiting:
            await self._serve(queue)
        if waiting or self._follows() or await self._ticks():
            return True
        before = self._last(self._subjects.events())
        for name in tuple(self._workflows.unfinished):
            await self._workflows.settle(name)
        if await self._wakes():
            return True
        if self._last(self._subjects.events()) != before:
            return True
        retries = [
            stored for stored in self._schedules() if queue_messages.ATTEMPT in stored.headers
        ]
        for retry in retries:
            self._bus.fire(retry.subject)
        return bool(retries) or await self._reconciles()

    async def _wakes(self) -> bool:
        """Whether a suspended workflow goes on."""
        before = self._last_queued()
        await self._suspended.round(self._bus.client().now())
        return self._last_queued() != before

    def _last_queued(self) -> int:
        messages = self._bus.stored(self._subjects.jobs_stream, self._subjects.queue("*"))
        return messages[-1].sequence if messages else 0

    def _waiting(self) -> set[str]:
        """Queues that hold messages, taken ones too."""
        messages = self._bus.stored(self._subjects.jobs_stream, self._subjects.queue("*"))
        return {stored.subject.rpartition(".")[2] for stored in messages}

    def _schedules(self) -> list[Stored]:
        return self._bus.stored(self._subjects.jobs_stream, self._subjects.schedule("*", "*"))

    async def _ticks(self) -> bool:
        """Whether a tick of a schedule is due, or is being dispatched."""
        now = broker_time(self._bus.client())
        return any(schedule.step(record, now) or record.firing for record in await self._cron.all())

    def _follows(self) -> bool:
        """Whether batches, graphs, workflows and hooks have not yet seen all that concerns them."""
        return any(
            self._last(pattern) > follower.position
            for follower in (self._workflows, self._suspended)
            for pattern in follower.patterns()
        ) or any(
            self._last(pattern) >= hook.position
            for hook in self._hooks
            for pattern in hook.patterns()
        )

    def _last(self, subject: str) -> int:
        messages = self._bus.stored(self._subjects.events_stream, subject)
        return messages[-1].sequence if messages else 0

    def _started(self) -> int:
        pattern = self._subjects.events("job", "*", "JobStarted")
        return len(self._bus.stored(self._subjects.events_stream, pattern))

    def _unfinished(self) -> list[str]:
        messages = self._bus.stored(self._subjects.jobs_stream, self._subjects.queue("*"))
        jobs = [stored.headers.get(queue_messages.JOB, "?") for stored in messages]
        return [*jobs, *(f"{noun} {key}" for noun, key in self._workflows.unfinished)][:20]

    # --- workers ----------------------------------------------------------------------------------
    async def _serve(self, queue: str) -> None:
        """Starts a worker for the queue, as its pool's settings say."""
        if queue in self._workers:
            return
        await self._bus.ensure_queue(queue)
        spark = self._settings.spark
        none = None if self._run_dir or spark.remote else NotAsked("", spark)
        bus = self._bus.client() if self._crash is None else MortalBus.of(self._bus, self._crash)
        parts = assemble(bus, self._assignment(queue), none)
        worker = Worker(parts)
        self._workers[queue] = _Serving(bus, parts, worker, asyncio.create_task(worker.run()))

    async def _bury_the_dead(self) -> None:
        """Ends what is left of a worker that was killed; its claims lapse, and others take them."""
        for queue, killed in list(self._workers.items()):
            if not (isinstance(killed.bus, MortalBus) and killed.bus.is_dead):
                continue
            del self._workers[queue]
            for job in killed.parts.in_flight.jobs.values():
                job.lost = True
            killed.task.cancel()
            await asyncio.gather(killed.task, return_exceptions=True)
            await killed.parts.tasks.cancel()
            self._move_time(self._settings.jobs.claim_seconds + 1.0)
            self._to_reconcile = _RECONCILED_TIMES

    async def _reconciles(self) -> bool:
        """After a crash: makes up for what it left undone, as the orchestrator does in a while."""
        if not self._to_reconcile:
            return False
        self._to_reconcile -= 1
        self._move_time(_RECONCILED_AFTER_SECONDS + 1.0)
        table = Unresolved(_RECONCILED_AFTER_SECONDS, _MOST_UNRESOLVED)
        jobs = self._subjects.events("job")
        for stored in self._bus.stored(self._subjects.events_stream, jobs):
            if step := transitions.step(stored):
                table.see(step)
        bus = self._bus.client()
        await Reconciler(bus, self._subjects, table).round(bus.now())
        return True

    def _assignment(self, queue: str) -> Assignment:
        """Of the pool that serves the queue; one of the usual profile where none does."""
        settings = self._settings
        pool = serving(settings).pool(queue)
        if not pool:
            pool = queue
            settings = replace(settings, pools={**settings.pools, queue: PoolTable()})
        settings = replace(settings, default_pool="")  # this worker is for this queue alone
        return replace(without_executor(settings, pool), queues=(queue,), run_dir=self._run_dir)

    async def _stop(self) -> None:
        await self._bury_the_dead()
        for one in self._workers.values():
            one.worker.stop("nothing is left to be done")
        for one in self._workers.values():
            await one.task

    def _later(self) -> datetime:
        return broker_time(self._bus.client()) + _PATIENCE
