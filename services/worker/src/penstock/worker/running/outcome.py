"""How one run of a job ended, as its thread returns it."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import msgspec

from penstock.events.job import JobError, SparkCost
from penstock.jobs.errors import JobsError, Verdict
from penstock.jobs.lifecycle import JobRecord
from penstock.jobs.retry import Outlook
from penstock.jobs.workflows.coded.inbox import Mark
from penstock.jobs.workflows.coded.running.nodes import Suspension
from penstock.worker.claiming.claimed_job import ClaimedJob


class Suspended(Verdict):
    """A workflow waits: nothing of it can go on.

    Args:
        suspension: what it waits for.
        number: of the advance.
        record: the job before it.
    """

    def __init__(self, suspension: Suspension, number: int, record: JobRecord) -> None:
        super().__init__("suspended")
        self.suspension, self.number, self.record = suspension, number, record

    @property
    def inline_steps(self) -> int:
        """How many the workflow has recorded."""
        return self.record.workflow.inline_steps if self.record.workflow else 0


class BeginsAnew(Verdict):
    """A workflow begins a further generation.

    Args:
        payload: its encoded call.
        generation: its number.
        mark: how far its inbox was used up.
        read: sequences of later signals that were consumed.
    """

    def __init__(self, payload: bytes, generation: int, mark: Mark, read: tuple[int, ...]) -> None:
        super().__init__("begins anew")
        self.payload, self.generation = payload, generation
        self.mark, self.read = mark, read


class Blocked(Verdict):
    """The code of a workflow does not fit what it has recorded.

    Args:
        reason: both sides in words.
        record: the job before it.
    """

    def __init__(self, reason: str, record: JobRecord) -> None:
        super().__init__(reason)
        self.record = record


class WorkflowTimedOut(JobsError):
    """A workflow took longer than the whole of it may, and its code is at its end."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A success unless ``error`` or ``verdict`` is set.

    Attributes:
        result: encoded.
        no_result: the function's author wants it not to be stored.
        result_until: it is stored apart from the event until then.
        error: of an attempt that failed.
        outlook: what the error leads to, as the job's author declared it; None: the usual.
        verdict: what becomes of the job, as itself or its middleware decided.
        ignored_error: one that the author declared harmless: the job counts as completed.
        run_seconds: wall time in the job's thread.
        cpu_seconds: CPU time of that thread.
        peak_memory_bytes: of this process while it ran; 0 where it was not measured.
        spark_cost: what it used on Spark; None where that is not measured.
    """

    result: bytes = b""
    no_result: bool = False
    result_until: datetime | None = None
    error: JobError | None = None
    outlook: Outlook | None = None
    verdict: Verdict | None = None
    ignored_error: str = ""
    run_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0
    spark_cost: SparkCost | None = None

    @property
    def is_success(self) -> bool:
        return self.error is None and self.verdict is None

    @property
    def is_advance(self) -> bool:
        """Whether it is one of a workflow, which waits now."""
        return isinstance(self.verdict, Suspended)


class FinishedJob(NamedTuple):
    """A job that has run, and how that ended."""

    job: ClaimedJob
    outcome: Outcome
