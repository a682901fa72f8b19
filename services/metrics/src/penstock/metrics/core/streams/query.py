"""One streaming query, report by report."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import msgspec

from penstock.events.snapshot import StreamLoad
from penstock.events.stream_report import BatchProgress, StreamReport
from penstock.metrics.core.queue import Head, Look, Queue
from penstock.metrics.core.streams.history import History, TaskLength
from penstock.metrics.core.streams.work import MOST_BATCHES, Batch, interval_of, rate_of, work_of
from penstock.metrics.core.tasks import AppTasks

_UNSEEN_SECONDS = 5.0
"""What a Master showed so long ago says nothing of the batch under way."""
_COUNTED_SECONDS = 5.0
"""Spark's count of a batch's tasks is there soon after its end, or not at all."""


class StreamQuery(Queue):
    """A query as the queue that a pool's meter reads: its batches are the jobs.

    A batch is under way while its application has tasks. Until it is late it is *running*, and
    then it is *waiting*, so that a promise that is broken shows before the batch is done.

    Attributes:
        fault: why the figures are old; empty where they are not.

    Args:
        promise_seconds: a batch is done within this.
    """

    __slots__ = (
        "_batches",
        "_came",
        "_cluster_at",
        "_done",
        "_latest",
        "_promise_seconds",
        "_report",
        "_running_since",
        "_slots",
        "_task_length",
        "_task_seconds",
        "_tasks",
        "_was_there",
        "fault",
    )

    def __init__(self, name: str, promise_seconds: float) -> None:
        super().__init__(name)
        self.fault = ""
        self._promise_seconds = promise_seconds
        self._report: StreamReport | None = None
        self._batches: deque[Batch] = deque(maxlen=2 * MOST_BATCHES)
        self._latest: BatchProgress | None = None
        self._done = 0
        self._came: int | None = None
        self._slots, self._task_seconds = History(), History()
        self._task_length = TaskLength()
        self._tasks: AppTasks | None = None
        self._was_there = False
        self._cluster_at = 0.0
        self._running_since: float | None = None

    # --- taking in -------------------------------------------------------------------------------
    def see_apps(self, apps: Mapping[str, AppTasks], slots: float, now: float) -> None:
        """The cluster was looked at.

        Args:
            apps: applications of the pool, by id.
            slots: of the pool's ready Workers, where the query's application is not known.
            now: of a steady clock.
        """
        self._cluster_at = now
        self._tasks = tasks = apps.get(self._report.app_id) if self._report else None
        self._was_there = self._was_there or tasks is not None
        self._slots.add(now, slots if tasks is None or tasks.cores is None else tasks.cores)
        if tasks is not None and tasks.is_measured:
            self._task_seconds.add(now, tasks.run_seconds)
            self._task_length.add(tasks.finished, tasks.run_seconds)
            self._count_tasks(now)
        if tasks is None or not tasks.is_measured or not (tasks.running or tasks.waiting):
            self._running_since = None
        elif self._running_since is None:
            self._running_since = now

    def see_report(self, report: StreamReport, at: float, now: float) -> list[BatchProgress]:
        """Takes in the newest report, which came at ``at`` by the clock of ``now``.

        Returns:
            The batches that are new in it, oldest first. Those of the first report were counted by
            an earlier process, if there was one: they say how long batches take, no more.
        """
        before = self._report
        # A smaller number follows a report that was forged: its times count for nothing.
        if before is None or before.run_id != report.run_id or report.number < before.number:
            self._batches.clear()
            self._latest = self._running_since = None
            if before is None or before.app_id != report.app_id:
                self._task_seconds.clear()
                self._task_length = TaskLength()
                self._was_there = False
        self._report, offset = report, at - report.at
        seen_until = self._latest.triggered_at if self._latest else -1.0
        new = [batch for batch in report.batches if batch.triggered_at > seen_until]
        for batch in new:
            self._batches.append(self._batch(batch, batch.triggered_at + offset))
            self._latest = batch
        if new:
            self._running_since = None
        self._done += len(new)
        self._came = None if before is None else (self._came or 0) + len(new)
        self._look(at, now)
        return [] if before is None else new

    def _batch(self, batch: BatchProgress, start: float) -> Batch:
        end = start + batch.seconds
        slots = self._slots.values(start, end)
        lag, before = batch.lag_rows, self._latest.lag_rows if self._latest else None
        grown = 0 if lag is None or before is None else lag - before
        return Batch(
            triggered_at=start,
            rows=batch.rows,
            arrived_rows=max(batch.rows + grown, 0),
            seconds=batch.seconds,
            overhead_seconds=max(batch.seconds - batch.add_seconds, 0.0),
            slots=sum(slots) / len(slots) if slots else 0.0,
            is_steady=bool(slots) and min(slots) == max(slots),
            task_counter=self._task_seconds.after(end),
            lag_rows=lag,
        )

    def _count_tasks(self, now: float) -> None:
        """The application is looked at each second: after a batch's end, its tasks are counted."""
        for nth, batch in enumerate(self._batches):
            end = batch.triggered_at + batch.seconds
            if batch.task_counter is None and now - end < _COUNTED_SECONDS:
                counter = self._task_seconds.after(end)
                self._batches[nth] = msgspec.structs.replace(batch, task_counter=counter)

    def _look(self, at: float, now: float) -> None:
        running = self._running_seconds(now)
        is_late = running > self._promise_seconds
        self.see(
            Look(
                at=at,
                waiting=int(is_late),
                claimed=int(running > 0 and not is_late),
                delivered=self._done,
                delivered_sequence=self._done,
            )
        )

    def age_of_late(self, now: float, wall_now: float) -> None:
        """Says how long a late batch has been under way; each second anew."""
        if self.look is not None:
            self._look(self.look.at, now)
            since = wall_now - self._running_seconds(now)
            self.head = Head(now, self._done, since) if self.look.waiting else None

    @property
    def is_gone(self) -> bool:
        """Its application was on the cluster, and is there no more."""
        return self._was_there and self._tasks is None

    def leave(self, now: float) -> None:
        """It is gone without a word: a driver that was killed reports no end."""
        if self._report is not None:
            self._report = msgspec.structs.replace(
                self._report, ended=True, error="its application, which left the cluster"
            )
            self._look(now, now)

    def settle(self) -> None:
        """The batches of so far were counted."""
        self._came = 0

    # --- giving out ------------------------------------------------------------------------------
    @property
    def arrived(self) -> int | None:
        """Batches done since `settle`, None before two reports."""
        return self._came

    @property
    def has_ended(self) -> bool:
        return self._report is not None and self._report.ended

    def load(self, now: float) -> StreamLoad:
        """Its figures for a snapshot."""
        batches = tuple(self._batches)
        # Of a run's first batch much is the start of the executors and of their code.
        rate, work = rate_of(batches), work_of(batches[1:] or batches)
        running, last = self._running_seconds(now), batches[-1] if batches else None
        return StreamLoad(
            query=self.name,
            rows_per_second=rate.rows_per_second,
            growth_per_second=rate.growth_per_second,
            lag_rows=last.lag_rows if last else None,
            interval_seconds=interval_of(batches),
            batch_rows=last.rows if last else 0,
            batch_seconds=last.seconds if last else 0.0,
            task_seconds_per_row=work.task_seconds_per_row,
            fixed_seconds=work.fixed_seconds,
            is_measured=work.is_measured,
            running_seconds=running,
            running_task_seconds=self._work_under_way(running),
            slots=self._slots.last or 0.0,
            ended=self._why_ended(),
        )

    def _running_seconds(self, now: float) -> float:
        if self._running_since is None or now - self._cluster_at > _UNSEEN_SECONDS:
            return 0.0
        return max(now - self._running_since, 1e-3)

    def _work_under_way(self, running_seconds: float) -> float:
        """Task seconds of a batch: its tasks of so far, and those that wait, as long as those of
        late. Later stages, and what is left of the tasks that run, are not in it.
        """
        if self._tasks is None or not running_seconds:
            return 0.0
        waiting = sum(stage.tasks for stage in self._tasks.waiting)
        return running_seconds * self._tasks.running + waiting * self._task_length.seconds

    def _why_ended(self) -> str:
        if not self.has_ended or self._report is None:
            return ""
        return f"it ended with {self._report.error}" if self._report.error else "it was stopped"
