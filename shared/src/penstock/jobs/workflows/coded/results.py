"""Digests of what the code of a workflow calls, and the values that it is given. Pure."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

import msgspec

from penstock.events.job import JobError
from penstock.events.workflow_memo import (
    MAX_REFUSAL_LENGTH,
    InlineResult,
    Resolution,
    StepOutcome,
)
from penstock.jobs.batches.batch_record import BatchRecord, BatchState
from penstock.jobs.errors import StepFailed
from penstock.jobs.job_type import JobType
from penstock.jobs.workflows.coded.commands import (
    NO_DEFAULT,
    Command,
    RunBatch,
    RunInline,
    RunJob,
    Sleep,
    WaitSignal,
)


class MapResult(msgspec.Struct, frozen=True, kw_only=True):
    """What :meth:`WorkflowContext.map` returns: how its jobs ended, each counted once.

    Attributes:
        batch_id: what ``client.batches`` and ``penstock batch`` show it by.
    """

    batch_id: str
    completed: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def total(self) -> int:
        """All jobs."""
        return self.completed + self.failed + self.cancelled


def end_of_batch(key: str, record: BatchRecord) -> Resolution:
    """How a step ended that is a batch.

    Args:
        key: of the step.
        record: of a batch that has ended.
    """
    counts = record.counts
    result = MapResult(
        batch_id=record.id,
        completed=counts.completed,
        failed=counts.failed,
        cancelled=counts.cancelled,
    )
    outcome = _BATCH_OUTCOMES[record.state]
    error = None
    if outcome != "completed":
        summary = f"{result.failed} of {result.total} jobs failed"
        message = f"{summary}: {record.reason} (batch {record.id})"
        error = JobError(kind=f"batch-{outcome}", message=message)
    return Resolution(key=key, outcome=outcome, value=msgspec.msgpack.encode(result), error=error)


def short_name(function: str) -> str:
    """The last part of a function's name, which keys are made of."""
    return function.rpartition(".")[2]


def digest(command: Command[Any], sealed: bool) -> str:
    """What must be the same when the code runs again; the length of a time may change.

    Args:
        sealed: arguments are encrypted: a digest of them would let them be guessed.
    """
    match command:
        case RunJob() if sealed or command.call.job.encrypted:
            return f"{command.call.job.name}(encrypted)"
        case RunJob():
            arguments = hashlib.blake2b(command.call.arguments, digest_size=6).hexdigest()
            return f"{command.call.job.name}({arguments})"
        case RunBatch():
            return command.function
        case RunInline():
            return str(getattr(command.function, "__qualname__", type(command.function).__name__))
        case WaitSignal():
            return command.signal
    return ""


def length(command: Command[Any]) -> timedelta | None:
    """How long it is waited for; None: without end."""
    if isinstance(command, Sleep):
        return command.length
    return command.timeout if isinstance(command, WaitSignal) else None


def failure(result: InlineResult) -> StepFailed | None:
    """What the await of an inline step raises; None where it returns."""
    if result.error is None:
        return None
    return StepFailed(result.key, result.error.kind, result.error.message)


def value(command: Command[Any], resolution: Resolution) -> Any:
    """What the await returns.

    Raises:
        StepFailed: the job did not complete.
        TimeoutError: no signal came, and there is no default.
        WrongResult, msgspec.MsgspecError: the value is of another type.
    """
    match command, resolution.outcome:
        case RunJob(), "completed" if resolution.value in _NOTHING:
            return None  # whatever its function declares: it stores none, or its error was ignored
        case RunJob(), "completed":
            job = command.call.job
            if isinstance(job, JobType):
                return job.decode_result(resolution.value)
            return msgspec.msgpack.decode(resolution.value)
        case RunBatch(), "completed":
            return msgspec.msgpack.decode(resolution.value, type=MapResult)
        case WaitSignal(), "received":
            return msgspec.msgpack.decode(resolution.value, type=command.kind)
        case WaitSignal(), "timed-out":
            if command.default is NO_DEFAULT:
                raise TimeoutError(f"no signal {command.signal!r} came within {command.timeout}")
            return command.default
        case _, "failed" | "cancelled":
            error = resolution.error
            kind, message = (error.kind, error.message) if error else (resolution.outcome, "")
            raise StepFailed(resolution.key, kind, message)
    return None


def misfit(command: Command[Any], value: bytes) -> str:
    """Why a signal's value is not of the type that is waited for; empty where it is.

    Args:
        command: the wait.
        value: MessagePack.
    """
    if not isinstance(command, WaitSignal):
        return ""
    try:
        msgspec.msgpack.decode(value, type=command.kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return str(error)[:MAX_REFUSAL_LENGTH] or type(error).__name__
    return ""


_NOTHING = (b"", b"\xc0")
_BATCH_OUTCOMES: dict[BatchState, StepOutcome] = {
    BatchState.COMPLETED: "completed",
    BatchState.FAILED: "failed",
    BatchState.CANCELLED: "cancelled",
}
