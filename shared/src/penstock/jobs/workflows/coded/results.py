"""Digests of what the code of a workflow calls, and the values that it is given. Pure."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

import msgspec

from penstock.events.workflow import Resolution
from penstock.jobs.errors import StepFailed
from penstock.jobs.job_type import JobType
from penstock.jobs.workflows.coded.commands import (
    NO_DEFAULT,
    Command,
    RunInline,
    RunJob,
    Sleep,
    WaitSignal,
)


def short_name(function: str) -> str:
    """The last part of a function's name, which keys are made of."""
    return function.rpartition(".")[2]


def digest(command: Command[Any]) -> str:
    """What must be the same when the code runs again; the length of a time may change."""
    match command:
        case RunJob():
            arguments = hashlib.blake2b(command.call.arguments, digest_size=6).hexdigest()
            return f"{command.call.job.name}({arguments})"
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


def value(command: Command[Any], resolution: Resolution) -> Any:
    """What the await returns.

    Raises:
        StepFailed: the job did not complete.
        TimeoutError: no signal came, and there is no default.
        WrongResult, msgspec.MsgspecError: the value is of another type.
    """
    match command, resolution.outcome:
        case RunJob(), "completed":
            job = command.call.job
            if isinstance(job, JobType):
                return job.decode_result(resolution.value or _NIL)
            return msgspec.msgpack.decode(resolution.value or _NIL)
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


_NIL = b"\xc0"
