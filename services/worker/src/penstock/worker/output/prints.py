"""Prints of jobs become log lines that name the job; those of other code stay as they are."""

from __future__ import annotations

import io
import logging
import sys
import threading
from contextvars import ContextVar
from typing import Any, TextIO

from penstock.telemetry.job_lines import STREAM, RunningJob, running_job

_LONGEST_PART = 8_000
"""Characters without a line break that are kept waiting for one."""
_writing: ContextVar[bool] = ContextVar("penstock_writing_a_print", default=False)
"""A handler that writes to ``sys.stderr`` must not make a log line of the line that it writes."""


class Prints(io.TextIOBase):
    """Takes the place of ``sys.stdout`` or ``sys.stderr`` in a worker.

    What is written below Python's own streams (by C code, a child process or through ``.buffer``)
    goes to the process's output as before, without the job's name.

    Args:
        stream: the one replaced; gets what no job writes.
        name: ``stdout`` or ``stderr``.
    """

    def __init__(self, stream: TextIO, name: str) -> None:
        super().__init__()
        self.stream, self._stream_name = stream, name
        self._parts: dict[RunningJob, str] = {}
        self._guard = threading.Lock()

    def write(self, text: str) -> int:
        job = running_job()
        if job is None or _writing.get():
            return self.stream.write(text)
        with self._guard:
            *complete, part = (self._parts.pop(job, "") + text).split("\n")
            part = part.rpartition("\r")[2] if not part.endswith("\r") else part  # progress bars
            if len(part) > _LONGEST_PART:
                complete.append(part)
                part = ""
            if part:
                self._parts[job], job.has_written = part, True
        for line in complete:
            self._log(job, line)
        return len(text)

    def end(self, job: RunningJob) -> None:
        """The job has ended: logs what it wrote after its last line break."""
        with self._guard:
            part = self._parts.pop(job, "")
        if part:
            self._log(job, part)

    def _log(self, job: RunningJob, line: str) -> None:
        record = logging.LogRecord(job.function, logging.INFO, "", 0, line.rstrip("\r"), (), None)
        vars(record).update(job.extra(), **{STREAM: self._stream_name})
        token = _writing.set(True)
        try:
            logging.root.handle(record)
        finally:
            _writing.reset(token)

    # --- the rest of a text stream ----------------------------------------------------------------
    def flush(self) -> None:
        self.stream.flush()

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self.stream.isatty()

    def fileno(self) -> int:
        return self.stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self.stream.errors

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def take_over() -> tuple[Prints, Prints]:
    """Replaces both streams of this process; call it after the log handlers were made."""
    sys.stdout, sys.stderr = streams = Prints(sys.stdout, "stdout"), Prints(sys.stderr, "stderr")
    return streams


def give_back(streams: tuple[Prints, Prints]) -> None:
    """Puts the streams that were replaced back."""
    sys.stdout, sys.stderr = (taken.stream for taken in streams)
