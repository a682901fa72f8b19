"""Digests of what the code of a workflow calls, and the values that it is given. Pure."""

from __future__ import annotations

import hashlib
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from penstock.events.job import JobError
from penstock.events.workflow_memo import (
    MAX_REFUSAL_LENGTH,
    InlineResult,
    Resolution,
    StepOutcome,
)
from penstock.jobs.batches.batch_record import BatchRecord, BatchState
from penstock.jobs.errors import StepFailed, WrongResult
from penstock.jobs.job_type import Call, JobType, type_name
from penstock.jobs.workflows.coded.commands import (
    NO_DEFAULT,
    Command,
    RunBatch,
    RunInline,
    RunJob,
    Sleep,
    WaitSignal,
)
from penstock.jobs.workflows.coded.running.nodes import Diverged

_MAX_SHOWN_FIELDS = 8
_MAX_DEPTH = 20
_PLAIN = (type(None), bool, int, float, str, bytes, Decimal, UUID, datetime, date, time, timedelta)
_encode_stably = msgspec.msgpack.Encoder(order="deterministic").encode


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


def argument_digest(command: Command[Any], sealed: bool) -> str:
    """What must be the same, too, where both the record and the code have it; else empty.

    Args:
        command: an inline step with plain values as arguments, or a batch. Other values, an
            author's own types among them, have no encoding that outlasts a deployment.
        sealed: as of :func:`digest`.
    """
    match command:
        case RunInline(args=args) if not sealed and _is_plain(args):
            try:
                encoded = _encode_stably(args)
            except (ValueError, TypeError, OverflowError, RecursionError):
                return ""
        case RunBatch(first=Call() as first) if not (sealed or first.job.encrypted):
            encoded = first.arguments + f" {command.total}".encode()
        case _:
            return ""
    return hashlib.blake2b(encoded, digest_size=6).hexdigest()


def _is_plain(value: Any, depth: int = 0) -> bool:
    if depth > _MAX_DEPTH:
        return False
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        return all(_is_plain(item, depth + 1) for item in value)
    if kind is dict:
        return all(_is_plain(item, depth + 1) for pair in value.items() for item in pair)
    return kind in _PLAIN


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


def value(command: Command[Any], end: Resolution, sealed: bool = False) -> Any:
    """What the await returns.

    Args:
        command: what is awaited.
        end: with a value that is not encrypted.
        sealed: of an encrypted workflow: nothing of its value is named in an error.

    Raises:
        StepFailed: the job did not complete.
        TimeoutError: no signal came, and there is no default.
        Diverged: the value is of another type than the code expects: it was stored by a job, or
            consumed by a wait, that declared another one; or no such step ends so.
    """
    match command, end.outcome:
        case RunJob(), "completed" if end.value in _NOTHING:
            return None  # whatever its function declares: it stores none, or its error was ignored
        case (RunJob() | RunBatch(), "completed") | (WaitSignal(), "received"):
            try:
                return _decoded(command, end.value)
            except Exception as error:  # also what an author's own types raise
                raise Diverged(_mismatch(command, end, error, sealed)) from error
        case WaitSignal(), "timed-out":
            if command.default is NO_DEFAULT:
                raise TimeoutError(f"no signal {command.signal!r} came within {command.timeout}")
            return command.default
        case _, "failed" | "cancelled":
            job_error = end.error
            kind, message = (job_error.kind, job_error.message) if job_error else (end.outcome, "")
            raise StepFailed(end.key, kind, message)
        case Sleep(), "fired":
            return None
    raise Diverged(f"recorded is that {end.key!r} ended as {end.outcome!r}, as no such step does")


def _decoded(command: Command[Any], value: bytes) -> Any:
    match command:
        case RunJob(call=Call(job=JobType() as job)):
            return job.decode_result(value)
        case RunBatch():
            return msgspec.msgpack.decode(value, type=MapResult)
        case WaitSignal():
            return msgspec.msgpack.decode(value, type=command.kind)
    return msgspec.msgpack.decode(value)


def _mismatch(command: Command[Any], end: Resolution, error: Exception, sealed: bool) -> str:
    noun = "signal" if isinstance(command, WaitSignal) else "result"
    if sealed:
        return f"recorded under {end.key!r} is a {noun} of another type than the code expects"
    reason = str(error)
    if not isinstance(error, WrongResult):  # that names the function and its type
        reason = f"it expects {type_name(getattr(command, 'kind', MapResult))}: {reason}"
    return (
        f"recorded under {end.key!r} is a {noun} of type {_shape(end.value)}, which the code "
        f"cannot take: {reason}"
    )


def _shape(value: bytes) -> str:
    """The type of an encoded value, with names of fields and without their contents."""
    try:
        plain = msgspec.msgpack.decode(value)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return "unreadable"
    if not isinstance(plain, dict):
        return type(plain).__name__
    names = [str(name)[:40] for name in plain]
    ellipsis = ", ..." if len(names) > _MAX_SHOWN_FIELDS else ""
    return f"object with fields {', '.join(names[:_MAX_SHOWN_FIELDS])}{ellipsis}"


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
