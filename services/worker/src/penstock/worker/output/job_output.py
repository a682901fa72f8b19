"""What a job writes while it runs: attributed to it, and published for `penstock job logs`."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from penstock.telemetry.job_lines import WrittenBy
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

    def of(self, job: ClaimedJob) -> WrittenBy:
        """A block, entered in the job's context: what is written inside it belongs to the job."""
        trace = _trace_id(job) if job.trace else ""
        attempt = job.live.output = Attempt(job.payload, job.attempt, self._worker, trace)
        if self._is_open and self._stored and self._stored not in logging.root.handlers:
            logging.root.addHandler(self._stored)  # at first, or a module replaced all handlers
        return _Writing(attempt, self._ended)

    def _ended(self, attempt: Attempt) -> None:
        for stream in self._prints or ():
            stream.end(attempt)
        if self._stored:
            self._stored.ended(attempt)


class _Writing(WrittenBy):
    """The block of an attempt; ``ended`` is called at its end, outside of the job's context."""

    __slots__ = ("_attempt", "_ended")

    def __init__(self, attempt: Attempt, ended: Callable[[Attempt], None]) -> None:
        super().__init__(attempt)
        self._attempt, self._ended = attempt, ended

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._ended(self._attempt)


def _trace_id(job: ClaimedJob) -> str:
    parsed = ids(job.trace["traceparent"])
    return parsed[0] if parsed else ""
