"""What a job writes while it runs: attributed to it, and published for `penstock job logs`."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.telemetry.job_lines import RunningJob
from penstock.telemetry.propagation import ids
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.output import prints
from penstock.worker.output.prints import Prints
from penstock.worker.output.stored_lines import Attempt, StoredLines


class JobOutput:
    """The output of all jobs of a worker.

    Args:
        worker: its id.
        stored: publishes lines; None where ``logs.enabled`` is off.
    """

    def __init__(self, worker: str, stored: StoredLines | None) -> None:
        self._worker, self._stored = worker, stored
        self._prints: tuple[Prints, Prints] | None = None
        self._is_open = False

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Takes over prints and lines in the block: of a process that is this worker alone."""
        self._is_open = True
        self._prints = taken = prints.take_over()
        try:
            yield
        finally:
            self._is_open = False
            prints.give_back(taken)
            if self._stored:
                logging.root.removeHandler(self._stored)
                await self._stored.finish()

    def of(self, job: ClaimedJob) -> Attempt:
        """A block, entered in the job's context: what is written inside it belongs to the job."""
        trace = _trace_id(job) if job.trace else ""
        job.live.output = attempt = Attempt(
            job_id=job.id,
            attempt=job.attempt,
            function=job.payload.function,
            worker=self._worker,
            trace=trace,
            payload=job.payload,
            flush=self._flush,
        )
        if self._is_open and self._stored and self._stored not in logging.root.handlers:
            logging.root.addHandler(self._stored)  # at first, or a module replaced all handlers
        return attempt

    def _flush(self, attempt: RunningJob) -> None:
        """The function of an attempt that has written has returned."""
        for stream in self._prints or ():
            stream.end(attempt)
        if self._stored:
            self._stored.ended(attempt)


def _trace_id(job: ClaimedJob) -> str:
    parsed = ids(job.trace["traceparent"])
    return parsed[0] if parsed else ""
