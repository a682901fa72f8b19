"""The tasks of Spark applications as a queue: what waits, what runs, what came and went.

A Spark pool's snapshot is that of a queue whose jobs are tasks. Its workers have slots, so that
tasks are counted by the workerful: with 4 slots a worker, 40 waiting tasks are 10.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from math import ceil, inf

import msgspec

from penstock.config import Pool
from penstock.events.snapshot import PoolSnapshot
from penstock.events.worker import QueueReport
from penstock.metrics.core.ahead import Ahead
from penstock.metrics.core.pool import PoolMeter
from penstock.metrics.core.queue import Head, Look, Queue
from penstock.metrics.core.sketches import serialized

_MOST_SAMPLES = 1000


class Waiting(msgspec.Struct, frozen=True):
    """Tasks of one stage that have no slot yet; ``since``: POSIX seconds."""

    tasks: int
    since: float


class AppTasks(msgspec.Struct, frozen=True, kw_only=True):
    """One application now: ``running`` tasks, and what it has ``started`` and ``finished`` so far.

    ``run_seconds``: of all tasks that are over. ``is_measured``: by itself; else it is a guess.
    ``cores``: granted now; None where that is not known. ``began_at``: POSIX seconds. ``jobs``:
    Penstock's, for which it works now, where it names them.
    """

    app_id: str
    waiting: tuple[Waiting, ...] = ()
    running: int = 0
    started: int = 0
    finished: int = 0
    run_seconds: float = 0.0
    is_measured: bool = True
    cores: int | None = None
    began_at: float = 0.0
    jobs: frozenset[str] = frozenset()

    @property
    def has_tasks(self) -> bool:
        return bool(self.waiting or self.running or self.started)


class TaskLine:
    """The tasks of one pool, folded look by look.

    Args:
        slots: of one worker.
        sla_seconds: a task that waits longer is late.

    Attributes:
        queue: what the pool's meter looks at.
        apps: as of the last look.
    """

    def __init__(self, name: str, slots: int, sla_seconds: float) -> None:
        self.queue = Queue(name)
        self.apps: Sequence[AppTasks] = ()
        self._slots, self._sla_seconds = slots, sla_seconds
        self._before: dict[str, AppTasks] | None = None
        self._started = 0

    def see(self, apps: Sequence[AppTasks], now: float, wall_now: float) -> QueueReport:
        """Takes in a look at all applications of the pool.

        Args:
            now: of a steady clock; ``wall_now``: the same instant in POSIX seconds.

        Returns:
            What was done since the look before.
        """
        before, self.apps = self._before, apps
        self._before = {app.app_id: app for app in apps}
        steps = [] if before is None else [_step(before.get(app.app_id), app) for app in apps]
        started = sum(step.started for step in steps)
        self._started += started
        self._look(apps, now)
        waits = [wall_now - tasks.since for app in apps for tasks in app.waiting]
        return self._report(steps, started, max(waits, default=0.0))

    def _look(self, apps: Sequence[AppTasks], now: float) -> None:
        waiting = [tasks for app in apps for tasks in app.waiting]
        delivered = ceil(self._started / self._slots)
        arrived = ceil((self._started + sum(tasks.tasks for tasks in waiting)) / self._slots)
        self.queue.see(
            Look(
                at=now,
                waiting=arrived - delivered,
                claimed=ceil(sum(app.running for app in apps) / self._slots),
                delivered=delivered,
                delivered_sequence=delivered,
            )
        )
        since = min((tasks.since for tasks in waiting), default=None)
        self.queue.head = Head(now, delivered, since)

    def _report(self, steps: Iterable[AppTasks], started: int, wait_seconds: float) -> QueueReport:
        """Those that started waited about as long as the first of those that still wait."""
        finished = sum(step.finished for step in steps)
        seconds = sum(step.run_seconds for step in steps)
        mean = seconds / finished if finished else 0.0
        started, finished = ceil(started / self._slots), ceil(finished / self._slots)
        return QueueReport(
            started=started,
            late=started if wait_seconds > self._sla_seconds else 0,
            finished=finished,
            pickup_sketch=_sketch(wait_seconds, started),
            pickup_sum_seconds=wait_seconds * min(started, _MOST_SAMPLES),
            service_sketch=_sketch(mean, finished),
            service_sum_seconds=mean * min(finished, _MOST_SAMPLES),
            service_sum_squares=mean * mean * min(finished, _MOST_SAMPLES),
        )


class TaskMeter(PoolMeter):
    """A pool of Spark Workers. What one needs is set, not measured: it gives what it has away.

    Attributes:
        served: pools of jobs whose tasks will come here.
    """

    def __init__(self, pool: Pool, line: TaskLine, window_seconds: float, interval: float) -> None:
        profile = pool.profile
        super().__init__(pool.name, [line.queue], profile, window_seconds, interval, inf)
        self._line, self._pool = line, pool
        self.served: Sequence[Ahead] = ()
        self._expected = 0

    def observe(self, now: float) -> None:
        look = self.queues[0].look
        if look is not None and look.at == self._at:
            self.workers.refresh(now)
        else:
            super().observe(now)

    def expect(self, now: float, wall_now: float) -> None:
        """Reckons with the tasks that jobs of other pools will bring, in workerfuls."""
        apps = self._line.apps
        named = frozenset[str]().union(*(app.jobs for app in apps))
        seconds = [wall_now - app.began_at for app in apps if app.has_tasks]
        jobs = sum(pool.to_come(now, named, seconds) for pool in self.served)
        self._expected = ceil(jobs * self._pool.slots_per_job / self._pool.slots)

    def waiting(self, now: float) -> int:
        return super().waiting(now) + self._expected

    def snapshot(self, *values: object, **named: object) -> PoolSnapshot | None:
        snapshot = super().snapshot(*values, **named)  # type: ignore[arg-type]
        if snapshot is None:
            return None
        return msgspec.structs.replace(
            snapshot,
            waiting=snapshot.waiting + self._expected,
            expected=self._expected,
            # those to come are the last in line, and wait from when they come
            waiting_ages_seconds=() if self._expected else snapshot.waiting_ages_seconds,
            worker_cpu_cores=None,
            worker_memory_bytes=None,
        )


def _step(before: AppTasks | None, after: AppTasks) -> AppTasks:
    """What an application did between two looks; never less than nothing.

    Spark forgets executors that are long dead, and their tasks with them.
    """
    if before is None:
        return after
    if not before.is_measured:
        return AppTasks(app_id=after.app_id)
    return AppTasks(
        app_id=after.app_id,
        started=max(after.started - before.started, 0),
        finished=max(after.finished - before.finished, 0),
        run_seconds=max(after.run_seconds - before.run_seconds, 0.0),
    )


def _sketch(seconds: float, count: int) -> bytes:
    return serialized(repeat(seconds, min(count, _MOST_SAMPLES)))
