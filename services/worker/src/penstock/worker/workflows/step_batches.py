"""Batches that are steps of a workflow: made by an advance, each of their jobs once.

A batch is made after the event that schedules it is stored, and before its advance ends. So where a
worker is lost in between, the next attempt finds the step in the workflow's memo, runs the author's
code again, which gives the same calls, and goes on: a job that exists is left as it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from penstock.bus import bounded
from penstock.events.workflow_memo import (
    Resolution,
    ScheduledStep,
)
from penstock.jobs import derived_ids
from penstock.jobs.batches.batch_record import BatchState
from penstock.jobs.batches.client import Batches
from penstock.jobs.errors import BatchTakesNoJobs, JobRefused, NotFound, WorkflowError
from penstock.jobs.job_type import Call
from penstock.jobs.workflows.coded import step_jobs
from penstock.jobs.workflows.coded.commands import RunBatch
from penstock.jobs.workflows.coded.context import check_call
from penstock.jobs.workflows.coded.results import end_of_batch
from penstock.jobs.workflows.coded.running.nodes import Leaf

_CALLS_AT_ONCE = 5_000
_READS_AT_ONCE = 20


class StepBatches:
    """Those of one workflow, in one attempt.

    Args:
        batches: makes and reads them.
        workflow_id: id of the workflow.
        in_loop: runs what talks to the broker, from the job's thread.
        seals: encrypts the arguments of their jobs.
    """

    def __init__(
        self,
        batches: Batches,
        workflow_id: str,
        in_loop: Callable[[Callable[[], Awaitable[Any]]], Any],
        *,
        seals: bool = False,
    ) -> None:
        self._seals = seals
        self._batches, self._workflow_id, self._in_loop = batches, workflow_id, in_loop
        self._begun: set[str] = set()

    def is_begun(self, batch: Leaf) -> bool:
        """Whether all its jobs were made."""
        return batch.key in self._begun

    def begin(self, batch: Leaf, calls: Iterator[Call]) -> None:
        """Makes its jobs; in the job's thread, since the author's code makes their calls."""
        assert batch.n is not None and isinstance(batch.command, RunBatch)
        batch_id, command = derived_ids.step_id(self._workflow_id, batch.n), batch.command
        begin = partial(
            self._batches.begin_step,
            batch_id,
            title=batch.key,
            allowed_failures=command.allowed_failures,
            total=command.total,
        )
        if self._in_loop(begin):
            self._fill(batch_id, calls)
        self._begun.add(batch.key)

    def _fill(self, batch_id: str, calls: Iterator[Call]) -> None:
        start = 0
        try:
            while chunk := list(islice(calls, _CALLS_AT_ONCE)):
                for call in chunk:
                    check_call("ctx.map", call)
                add = partial(self._batches.add, key=batch_id, start=start, sealed=self._seals)
                self._in_loop(partial(add, batch_id, chunk))
                start += len(chunk)
        except BatchTakesNoJobs:
            return  # a later attempt of the workflow has made them all, or it was cancelled
        except (JobRefused, WorkflowError) as error:
            reason = f"adding its jobs failed: {error}"[:500]
            self._in_loop(partial(self._batches.cancel, batch_id, reason))
        else:
            self._in_loop(partial(self._batches.close, batch_id))

    def read_ends(self, steps: Iterable[ScheduledStep]) -> list[Resolution]:
        """How those of open steps ended that are batches and have, in the order of their ends."""
        batches = [step for step in steps if step.kind == "batch"]
        if not batches:
            return []
        ends = self._in_loop(lambda: bounded.gather(self._end_of, batches, _READS_AT_ONCE))
        return [end for _, end in sorted(filter(None, ends), key=lambda end: end[0])]

    async def _end_of(self, step: ScheduledStep) -> tuple[int, Resolution] | None:
        """How a batch ended, and where in the log; None while it has not. Raises BusError."""
        try:
            record = await self._batches.show(derived_ids.step_id(self._workflow_id, step.n))
        except NotFound:
            return None
        if step_jobs.is_another_batch(record, step):
            self._begun.add(step.key)
            return record.first_sequence, step_jobs.taken(record, step)
        if record.state is not BatchState.OPEN:
            self._begun.add(step.key)
        return (record.sequence, end_of_batch(step.key, record)) if record.state.ended else None
