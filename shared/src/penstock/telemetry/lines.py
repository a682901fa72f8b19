"""Log lines of every process: plain on standard error, or JSON, one object a line.

Jobs' ids, arguments and error texts come from outside. Whatever they hold, they neither begin a
line of their own nor steer the terminal.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from unicodedata import category

from penstock.telemetry.job_lines import IS_RETRIED, STREAM, TRACEBACK, failure_of, of_job
from penstock.telemetry.spans import trace_id

log = logging.getLogger("penstock")

_HARMFUL = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Control (C0, C1), format (writing direction, invisible), surrogates, line and paragraph ends."""
_HARMLESS = "\n\t\u200c\u200d"  # joiners: words of some languages, and emoji, are spelt with them
_CONTINUED = "\n  | "


def printable(text: str) -> str:
    """``text`` without characters that control the terminal or hide text: control, bidi, …

    Line breaks stay; use :func:`one_line` where the text must be a single line.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join("�" if _is_harmful(char) else char for char in text)


def one_line(text: str) -> str:
    """As :func:`printable`, with line breaks and tabs as ``\\n`` and ``\\t``."""
    return printable(text.replace("\n", "\\n").replace("\t", "\\t"))


def printable_json(text: str) -> str:
    """JSON text with the same value, in which what :func:`printable` replaces is escaped."""
    return re.sub(r"[^ -~\n\t]", _escaped, text)


class PlainLines(logging.Formatter):
    """``12:00:00.123 INFO    penstock.metrics  text``; further lines of it begin with ``  | ``.

    Lines of a job name it: ``[job ID attempt 1 function NAME worker NAME]``, and its trace. A
    failed attempt that is retried is one line: its traceback is in the job's log, and here from the
    level DEBUG on.
    """

    def __init__(self) -> None:
        pattern = "%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s  %(message)s"
        super().__init__(pattern, "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        is_brief = getattr(record, IS_RETRIED, False) and not log.isEnabledFor(logging.DEBUG)
        if (trace := getattr(record, TRACEBACK, "")) and not is_brief:
            text += f"\n{trace.rstrip()}"
        return printable(text).replace("\n", _CONTINUED)

    def formatMessage(self, record: logging.LogRecord) -> str:
        about = of_job(record)
        if not about:
            return super().formatMessage(record)
        named = " ".join(f"{name.removesuffix('_id')} {value}" for name, value in about.items())
        message, record.message = record.message, f"[{named}] {record.message}"
        try:
            return super().formatMessage(record)
        finally:
            record.message = message  # other handlers get the same record


class JsonLines(logging.Formatter):
    """One object a line: at, level, logger, text; those of a job and of an error where they are."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "text": record.getMessage(),
            **of_job(record),
        }
        if stream := getattr(record, STREAM, ""):
            line["stream"] = stream
        if trace := trace_id():
            line["trace_id"] = trace
        line |= failure_of(record, lambda: self.traceback(record))
        return json.dumps(line)

    def traceback(self, record: logging.LogRecord) -> str:
        """The formatted traceback of a record that has one; else empty."""
        return self.formatException(record.exc_info) if record.exc_info else ""


def start(level: str, as_json: bool = False) -> None:
    """Sends every log line from ``level`` upwards to standard error, replacing what was set up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else PlainLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("nats").setLevel(logging.WARNING)


def are_json() -> bool:
    """Whether this process writes JSON lines."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.root.handlers)


def flags() -> tuple[str, ...]:
    """Arguments of a process that this one starts, so that its lines look the same."""
    return ("--log-json",) if are_json() else ()


def _is_harmful(char: str) -> bool:
    return char not in _HARMLESS and category(char) in _HARMFUL


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    if not _is_harmful(char):
        return char
    units = memoryview(char.encode("utf-16", "surrogatepass")[2:]).cast("H")
    return "".join(f"\\u{unit:04x}" for unit in units)
