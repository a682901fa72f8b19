"""Looking at the applications of a Spark cluster: a pool of Workers is measured by their tasks.

An application belongs to the pool whose resource it asks for; one that asks for none may run on any
Worker, and counts for the first pool.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence

from penstock.config import Pool, Settings
from penstock.events.worker import WorkerReport
from penstock.metrics.core.ahead import Ahead
from penstock.metrics.core.pool import PoolMeter
from penstock.metrics.core.sketches import BadSketch
from penstock.metrics.core.streams.meter import StreamMeter
from penstock.metrics.core.tasks import AppTasks, TaskLine, TaskMeter, Waiting
from penstock.runtime.service import Service
from penstock.spark.master import Application, Master, MasterAway, Stage, ui_url
from penstock.spark.sessions import job_of

log = logging.getLogger("penstock.metrics")

_WAITING = "WAITING"
_MOST_APPS = 200
"""More applications than this at one Master are not asked each second."""
_SLOW_SECONDS = 10.0
"""The last answer of a driver stands for so long while it is too busy to answer."""


class SparkTasks:
    """The pools of kind ``spark``.

    Attributes:
        meters: by pool, of those without a source.

    Args:
        streams: meters of the pools whose source is streaming queries: they are shown the
            applications, and are measured by the queries' reports.
    """

    def __init__(
        self,
        settings: Settings,
        tables: Mapping[str, Pool],
        streams: Mapping[str, StreamMeter] = {},
    ) -> None:
        self._pools = {name: pool for name, pool in tables.items() if pool.kind == "spark"}
        self._streams = streams
        self._lines = {
            pool.name: TaskLine(pool.name, pool.slots, pool.profile.sla_seconds)
            for pool in self._pools.values()
            if pool.name not in streams
        }
        self.meters = {
            name: TaskMeter(
                self._pools[name],
                line,
                settings.metrics.window_seconds,
                settings.metrics.interval_seconds,
            )
            for name, line in self._lines.items()
        }
        self._master = Master(ui_url(settings.cluster))
        self._interval_seconds = settings.metrics.interval_seconds
        self._answers: dict[str, tuple[AppTasks, float]] = {}
        self._number = 0
        self._started_at = time.time()
        self._away = False

    def serve(self, pools: Mapping[str, Pool], meters: Mapping[str, PoolMeter]) -> None:
        """From now on the jobs of pools that a Spark pool serves count there ahead of time."""
        for name, meter in self.meters.items():
            served = self._pools[name].serves
            meter.served = [Ahead(meters[p], pools[p].profile.max_workers) for p in served]

    def expect(self, now: float, wall_now: float) -> None:
        """After all pools were looked at: what is to come."""
        for meter in self.meters.values():
            meter.expect(now, wall_now)

    async def run(self, running: Service) -> None:
        """Looks each interval, until the service stops; at once where there is no such pool."""
        while self._pools and await running.pause(self._interval_seconds):
            try:
                apps = await asyncio.to_thread(self._look)
            except MasterAway as error:
                if not self._away:
                    log.warning("tasks of Spark applications are not measured: %s", error)
                self._away = True
                continue
            self._away = False
            self._fold(apps)

    def _look(self) -> dict[str, list[AppTasks]]:
        """The applications of each pool."""
        tasks: dict[str, list[AppTasks]] = {name: [] for name in self._pools}
        # Each costs three requests to its driver, one after another: bounded, or a look would
        # take longer than the interval.
        apps = self._master.view().activeapps[:_MOST_APPS]
        self._answers = {app.id: self._answers[app.id] for app in apps if app.id in self._answers}
        for app in apps:
            pool = self._pool_of(app)
            tasks[pool].append(self._tasks(app, names_jobs=bool(self._pools[pool].serves)))
        return tasks

    def _pool_of(self, app: Application) -> str:
        resources = (str(one.get("name", "")) for one in app.resourcesperexecutor)
        return next((name for name in resources if name in self._pools), next(iter(self._pools)))

    def _tasks(self, app: Application, names_jobs: bool) -> AppTasks:
        try:
            stages, executors = self._master.stages(app.id, "ACTIVE"), self._master.totals(app.id)
            tags = self._master.running_tags(app.id) if names_jobs else ()
        except MasterAway as error:
            log.debug("the tasks of application %s are not known: %s", app.id, error)
            last, at = self._answers.get(app.id, (None, 0.0))
            return last if last and time.monotonic() - at < _SLOW_SECONDS else _blind(app)
        tasks = AppTasks(
            app_id=app.id,
            waiting=tuple(_waiting(stages)),
            running=sum(one.active_tasks for one in executors),
            started=sum(one.active_tasks + one.ended_tasks for one in executors),
            finished=sum(one.ended_tasks for one in executors),
            run_seconds=sum(one.total_duration for one in executors) / 1000,
            cores=app.cores,
            began_at=app.starttime / 1000,
            jobs=frozenset(job for tag in tags if (job := job_of(tag))),
        )
        self._answers[app.id] = (tasks, time.monotonic())
        return tasks

    def _fold(self, apps: Mapping[str, Sequence[AppTasks]]) -> None:
        now, wall_now = time.monotonic(), time.time()
        for name, stream in self._streams.items():
            stream.see_apps(apps[name], now)
        self._number += 1
        for name, line in self._lines.items():
            done = line.see(apps[name], now, wall_now)
            report = WorkerReport(
                worker=f"tasks-of-{name}",  # stands for all applications of the pool
                host="",
                pool=name,
                pid=0,
                state="starting",
                number=self._number,
                at=wall_now,
                started_at=self._started_at,
                queues={name: done},
            )
            try:
                self.meters[name].add_report(report, now)
            except BadSketch as error:
                log.warning("tasks of Spark in pool %s: %s", name, error)


def _waiting(stages: Sequence[Stage]) -> list[Waiting]:
    return [
        Waiting(left, stage.submitted_at)
        for stage in stages
        if stage.submitted_at is not None
        and (left := stage.num_tasks - stage.num_active_tasks - stage.num_complete_tasks) > 0
    ]


def _blind(app: Application) -> AppTasks:
    """Of an application without a web UI: it waits for its first slot, or uses all it has."""
    began_at = app.starttime / 1000
    if app.state == _WAITING:
        line = (Waiting(1, began_at),)
        return AppTasks(app_id=app.id, waiting=line, is_measured=False, began_at=began_at)
    return AppTasks(
        app_id=app.id,
        running=app.cores,
        is_measured=False,
        cores=app.cores,
        began_at=began_at,
    )
