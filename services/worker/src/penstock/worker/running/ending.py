"""Ending a running job from outside: by an interruption, or in the end with this process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from penstock.jobs.errors import Interruption
from penstock.runtime.tasks import Tasks
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.running.runner import Runner
from penstock.worker.spark.lease import SparkLease

log = logging.getLogger("penstock.worker")

QUIT_SECONDS = 5.0
"""What a process that ends with its job takes at most to say so."""
_LEAST_GRACE_SECONDS = 0.5


class Ending:
    """Args:
    grace_seconds: how long an interrupted job may go on.
    quit: called when it does not stop.
    """

    def __init__(
        self,
        runner: Runner,
        spark: SparkLease,
        grace_seconds: float,
        quit: Callable[[ClaimedJob, str], None],
    ) -> None:
        self._runner, self._spark, self._quit = runner, spark, quit
        self._grace_seconds = max(grace_seconds, _LEAST_GRACE_SECONDS)
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks()

    def end(self, job: ClaimedJob, how: type[Interruption], why: str) -> None:
        """Throws ``how`` into the job, if it still runs."""
        if self._runner.current is not job:
            return
        self._runner.interrupt(job, how)
        if job.used_spark:
            self._tasks.spawn(asyncio.to_thread(self._spark.interrupt, job.id))
        self._runner.last_chance(job, self._grace_seconds + 2 * QUIT_SECONDS)
        self._loop.call_later(self._grace_seconds, self._give_up, job, why)

    def _give_up(self, job: ClaimedJob, why: str) -> None:
        if self._runner.current is job:
            log.error("job %s does not stop although %s: this worker ends", job.id, why)
            self._quit(job, why)
