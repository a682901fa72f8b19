"""Which job a log line belongs to: known by the context in which the line is written.

A context variable, not a global: one process may run several jobs at once, in threads or as tasks
of an event loop. A thread that a job starts by itself begins with an empty context; its lines
belong to the job where it runs ``contextvars.copy_context().run(function)``, or logs by
``context.logger``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Any

import msgspec

from penstock.telemetry.spans import trace_id

Fields = dict[str, str | int]
_RUNNING = "running_job"
ERROR_TYPE, TRACEBACK, STREAM = "error_type", "error_traceback", "stream"
"""Attributes of a record: of the line about a failed attempt, and of what a job printed."""
IS_RETRIED = "error_is_retried"
"""Attribute of the line about a failed attempt that another one follows."""


class RunningJob(msgspec.Struct, eq=False):
    """The attempt that lines belong to: those that are written inside of ``with running_job:``.

    Attributes:
        job_id: of the job.
        attempt: 1 for the first.
        function: registered name.
        worker: that runs it.
        trace: id of the trace that its dispatch began; empty for none.
        flush: called at the end of the block, outside of the job's context, if it has written.
        has_written: a line, or a part of one, is kept in its name.
        has_ended: its function has returned; the line about its failure comes after that.
    """

    job_id: str
    attempt: int
    function: str
    worker: str
    trace: str
    flush: Callable[[RunningJob], None] | None = None
    has_written: bool = False
    has_ended: bool = False
    _outside: Token[RunningJob | None] | None = None

    def __enter__(self) -> None:
        self._outside = _running.set(self)

    def __exit__(self, *error: object) -> None:
        assert self._outside is not None
        _running.reset(self._outside)
        self.has_ended = True
        if self.has_written and self.flush is not None:
            self.flush(self)

    def fields(self) -> Fields:
        """What its lines carry: job_id, attempt, function, worker, and trace_id if it has one."""
        fields: Fields = {
            "job_id": self.job_id,
            "attempt": self.attempt,
            "function": self.function,
            "worker": self.worker,
        }
        if trace := trace_id() or self.trace:
            fields["trace_id"] = trace
        return fields

    def extra(self) -> dict[str, Any]:
        """For ``log.info(..., extra=...)`` outside of the job's own context."""
        return {_RUNNING: self, **self.fields()}


_running: ContextVar[RunningJob | None] = ContextVar("penstock_running_job", default=None)


def running_job() -> RunningJob | None:
    """The job in whose context this is called; None outside of jobs."""
    return _running.get()


def job_of(record: logging.LogRecord) -> RunningJob | None:
    """The job that a line belongs to."""
    return _running.get() or getattr(record, _RUNNING, None)


def of_job(record: logging.LogRecord) -> Fields:
    """Job, attempt, function, worker and trace of a line; empty where it belongs to no job."""
    job = job_of(record)
    return job.fields() if job else {}


def failure_of(record: logging.LogRecord, formatted: Callable[[], str]) -> Fields:
    """Error type and traceback of a line, where it has them.

    Args:
        formatted: the traceback of ``record.exc_info``.
    """
    fields: Fields = {}
    if kind := getattr(record, ERROR_TYPE, ""):
        fields["error_type"] = kind
    elif record.exc_info and (raised := record.exc_info[0]):
        fields["error_type"] = f"{raised.__module__}.{raised.__qualname__}"
    if trace := getattr(record, TRACEBACK, ""):
        fields["traceback"] = trace
    elif record.exc_info:
        fields["traceback"] = formatted()
    return fields
