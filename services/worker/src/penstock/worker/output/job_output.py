"""What a job writes while it runs: attributed to it, and published for `penstock job logs`."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from penstock.telemetry.job_lines import written_by
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

    @contextmanager
    def of(self, job: ClaimedJob) -> Iterator[None]:
        """What is written inside the block belongs to the job; call it in the job's context."""
        running = job.live.output = Attempt(job, self._worker, _trace_id(job))
        if self._is_open and self._stored and self._stored not in logging.root.handlers:
            logging.root.addHandler(self._stored)  # at first, or a module replaced all handlers
        try:
            with written_by(running):
                yield
        finally:
            for stream in self._prints or ():
                stream.end(running)
            if self._stored:
                self._stored.ended(running)


def _trace_id(job: ClaimedJob) -> str:
    if not (trace := job.trace):  # the usual case: nothing is traced
        return ""
    parsed = ids(trace["traceparent"])
    return parsed[0] if parsed else ""
