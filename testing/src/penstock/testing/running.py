"""Running what waits: the real worker, and the orchestrator's batches, graphs, schedules, hooks."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta

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
from penstock.orchestrator.hooks.runner import HookRunner
from penstock.orchestrator.scheduling.ticker import Ticker
from penstock.orchestrator.workflows.suspended_workflows import SuspendedWorkflows
from penstock.orchestrator.workflows.tracker import WorkflowTracker
from penstock.runtime.workers.assignment import Assignment
from penstock.testing.memory.bus import MemoryBus
from penstock.testing.spark import NotAsked
from penstock.worker.app import without_executor
from penstock.worker.loop import Worker
from penstock.worker.parts import assemble

_LOOK_SECONDS = 0.002
_PATIENCE = timedelta(seconds=1.1)
"""The orchestrator waits a second here and there for what may still come; here nothing will."""


class Run:
    """One call of `run_pending`.

    Args:
        run_dir: where the Spark supervisor listens; empty for none.
        series: takes what the jobs record in metrics of their own.
    """

    def __init__(self, bus: MemoryBus, settings: Settings, run_dir: str, series: JobSeries) -> None:
        self._series = series
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
        self._workers: dict[str, tuple[Worker, asyncio.Task[None]]] = {}

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
        for _, task in self._workers.values():
            if task.done():
                task.result()
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
        return bool(retries)

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
        worker = Worker(assemble(self._bus.client(), self._assignment(queue), none))
        self._workers[queue] = worker, asyncio.create_task(worker.run())

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
        for worker, _ in self._workers.values():
            worker.stop("nothing is left to be done")
        for _, task in self._workers.values():
            await task

    def _later(self) -> datetime:
        return broker_time(self._bus.client()) + _PATIENCE
