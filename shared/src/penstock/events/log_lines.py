"""What a job wrote, as workers publish it: lines of its loggers, and what it printed.

Kept in a stream of its own, ``LOGS``, bounded by size and age, from which the broker discards the
oldest messages. Nothing depends on it: a line that is lost changes no job.
"""

from __future__ import annotations

import msgspec

from penstock.events.brief import brief, brief_fields
from penstock.events.envelope import Instant, Int64


class LogLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line.

    Attributes:
        at: when it was written, by the clock of the worker's host.
        level: ``debug``, ``info``, ``warning``, ``error`` or ``critical``.
        logger: name of the logger; of a printed line the job's function.
        stream: ``stdout`` or ``stderr`` where it was printed.
        error_type: dotted name of the exception, of a line about a failure.
        traceback: formatted; empty where there is none.
    """

    at: Instant
    text: str
    level: str = "info"
    logger: str = ""
    stream: str = ""
    error_type: str = ""
    traceback: str = ""


class LogChunk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Some lines of one attempt: the body of a message.

    Attributes:
        number: counts up within the worker, so that only a message stored twice has the same body.
        lines: in the order in which they were written; none where they are sealed.
        sealed: the lines as JSON, encrypted as the job's arguments are.
        dropped: lines that were lost after these, by a limit or because the broker was away.
        ended: the function has returned; only the line about its failure may still come.
    """

    job_id: str
    attempt: Int64
    function: str
    queue: str
    worker: str
    host: str
    number: Int64
    lines: tuple[LogLine, ...] = ()
    sealed: bytes = b""
    dropped: Int64 = 0
    ended: bool = False

    __repr__ = brief
    __rich_repr__ = brief_fields
