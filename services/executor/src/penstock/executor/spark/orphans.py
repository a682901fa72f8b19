"""Ends what dead workers left running on a Spark that is not this host's own.

The host's own server has its supervisor, which sees each worker's connection end.
"""

from __future__ import annotations

import asyncio
import logging

from penstock.events.worker import WorkerReport
from penstock.executor.spark.release import release
from penstock.runtime.tasks import Tasks

log = logging.getLogger("penstock.executor")


class SparkOrphans:
    """Remembers which worker works in which session.

    Args:
        remote: address of that Spark; empty where there is none.
    """

    def __init__(self, remote: str) -> None:
        self._remote = remote
        self._sessions: dict[str, str] = {}
        self._tasks = Tasks()

    def learn(self, report: WorkerReport) -> None:
        """Takes in what a worker reports."""
        if self._remote and report.spark_session:
            self._sessions[report.worker] = report.spark_session

    def ended(self, worker: str, code: int | None) -> None:
        """A worker's process is gone. One that ended well has closed its session itself."""
        session = self._sessions.pop(worker, "")
        if session and code != 0:
            log.warning("worker %s died: its Spark session %s is ended", worker, session)
            self._tasks.spawn(asyncio.to_thread(release, self._remote, session))
