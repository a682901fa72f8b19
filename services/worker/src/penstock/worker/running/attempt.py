"""One attempt of a job: its function inside its middleware, and what its result or error means."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from functools import lru_cache, partial
from typing import Any

from penstock import telemetry
from penstock.events.job import JobError
from penstock.events.workflow_memo import TIMED_OUT
from penstock.jobs.errors import LimitExceeded, TimedOut, WrongResult
from penstock.jobs.job_type import encode_result
from penstock.jobs.retry import outlook
from penstock.telemetry import names
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.core.outcome import FINAL, error_of, timed_out, wrong_result
from penstock.worker.middleware import gates as middleware
from penstock.worker.middleware.gates import Gates
from penstock.worker.output.job_output import JobOutput
from penstock.worker.running.outcome import (
    BeginsAnew,
    Blocked,
    Outcome,
    Suspended,
    WorkflowTimedOut,
)
from penstock.worker.running.running_jobs import ThreadRun
from penstock.worker.workflows.advances import Advances

log = logging.getLogger("penstock.worker")

MakeContext = Callable[[ClaimedJob], Any]
Writing = Callable[[ClaimedJob], AbstractContextManager[Any]]


class Functions:
    """Calls the functions of jobs.

    Args:
        make_context: gives a held job its :class:`penstock.jobs.Context`.
        gates: the middleware that jobs run inside; None for none.
        output: what jobs write while they run; None leaves it as it is.
        advances: runs workflows.

    Attributes:
        writing: gives a block in which what is written in this thread or task belongs to the job.
    """

    def __init__(
        self,
        make_context: MakeContext,
        gates: Gates | None,
        output: JobOutput | None = None,
        advances: Advances | None = None,
    ) -> None:
        self._make_context, self._gates, self._advances = make_context, gates, advances
        self._has_pool_middleware = gates is not None and bool(gates.pool)
        self.writing: Writing = output.of if output else nullcontext

    def call(self, job: ClaimedJob, run: ThreadRun) -> Outcome:
        """What the function returns, in the job's own thread. Raises what the function raises."""
        kind = job.kind
        if self._has_pool_middleware or kind.middleware:
            returned = self._call_within(job, run)
        else:
            returned = self._bare_call(job)
            if kind.is_async:
                returned = _await(returned, run)
        if kind.kind and isinstance(returned, Suspended | Blocked | BeginsAnew):
            return Outcome(verdict=returned)
        return Outcome(result=_encoded(job, returned))

    def _call_within(self, job: ClaimedJob, run: ThreadRun) -> Any:
        """What the function returns, inside the pool's middleware and the job's own."""
        context = self._make_context(job)
        assert self._gates is not None
        arounds = self._gates.around(job, context)
        call = partial(self._bare_call, job, context)
        if job.kind.is_async or any(
            isinstance(one, AbstractAsyncContextManager) for one in arounds
        ):
            return _await(middleware.call_async(arounds, call), run)
        return middleware.call(arounds, call)

    async def result(self, job: ClaimedJob) -> bytes:
        """The encoded result of an asynchronous job, in a loop that others share. Raises what its
        function raises."""
        if not (self._has_pool_middleware or job.kind.middleware):
            return _encoded(job, await self._bare_call(job))
        context = self._make_context(job)
        assert self._gates is not None
        arounds = self._gates.around(job, context, in_loop=True)
        call = partial(self._bare_call, job, context)
        return _encoded(job, await middleware.call_async(arounds, call))

    def _bare_call(self, job: ClaimedJob, context: Any = None) -> Any:
        """Calls the function; with a context of its own, if it takes one and none is given."""
        kind = job.kind
        if kind.kind and self._advances is not None:
            return self._advances.run(job)
        if not kind.takes_context:
            return kind.function(**job.arguments)
        own = self._make_context(job) if context is None else context
        return kind.function(own, **job.arguments)


def _await(work: Coroutine[Any, Any, Any], run: ThreadRun) -> Any:
    with asyncio.Runner() as runner:
        run.waits_in(runner.get_loop())
        try:
            return runner.run(work)
        finally:
            run.waits_in(None)


def _encoded(job: ClaimedJob, returned: Any) -> bytes:
    if returned is middleware.SUPPRESSED:
        return encode_result(None)
    return job.kind.encode_result(returned)


def failure(job: ClaimedJob, error: BaseException) -> Outcome:
    """What an attempt that did not succeed leads to."""
    if isinstance(error, WrongResult):
        return Outcome(error=wrong_result(error), outlook=FINAL)
    if isinstance(error, WorkflowTimedOut):
        return Outcome(error=JobError(kind=TIMED_OUT, message=str(error)), outlook=FINAL)
    if isinstance(error, LimitExceeded) and job.live.exceeded:
        recorded = job.live.exceeded
    elif isinstance(error, TimedOut):
        recorded = timed_out(job.timeout_seconds)
    else:
        recorded = error_of(error, traceback.format_exc())
    try:
        ahead = outlook(job.kind.retries, job.attempt, error)
    except Exception:
        log.exception("job %s: its own backoff failed; the usual one is taken", job.id)
        return Outcome(error=recorded)
    if ahead.harmless:
        ignored = f"{recorded.kind}: {recorded.message}"
        return Outcome(result=encode_result(None), ignored_error=ignored, outlook=ahead)
    return Outcome(error=recorded, outlook=ahead)


def span(job: ClaimedJob) -> Any:
    """A context manager: the span of the attempt."""
    if not (job.is_traced and telemetry.enabled()):
        return telemetry.unsampled()
    return telemetry.handling(
        _shape(job.payload.function, job.queue),
        job.delivery.headers,
        (job.id, job.attempt, job.pickup_seconds, job.token),
    )


@lru_cache(1024)
def _shape(function: str, queue: str) -> telemetry.Shape:
    return telemetry.Shape(
        names.run(function),
        telemetry.SpanKind.CONSUMER,
        fixed={
            names.MESSAGING_SYSTEM: names.NATS,
            names.MESSAGING_OPERATION_NAME: "run",
            names.MESSAGING_OPERATION_TYPE: names.PROCESS,
            names.MESSAGING_DESTINATION: queue,
            names.FUNCTION: function,
        },
        varying=(
            names.MESSAGING_MESSAGE_ID,
            names.ATTEMPT,
            names.WAIT_SECONDS,
            names.FENCING_TOKEN,
        ),
    )
