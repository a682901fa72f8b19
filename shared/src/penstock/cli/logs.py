"""Log lines: plain on standard error, or JSON, one object a line."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from unicodedata import category

from penstock.telemetry.spans import trace_id


def printable(text: str) -> str:
    """``text`` without control characters: what jobs say must not steer the terminal."""
    return "".join(char if char in "\n\t" or category(char) != "Cc" else "�" for char in text)


class PlainLines(logging.Formatter):
    """``12:00:00.123 INFO  penstock.metrics  text``; an error's traceback follows it."""

    def __init__(self) -> None:
        pattern = "%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s  %(message)s"
        super().__init__(pattern, "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class JsonLines(logging.Formatter):
    """One object a line: at, level, logger, text; trace and traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "text": record.getMessage(),
        }
        if trace := trace_id():
            line["trace_id"] = trace
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def start(level: str, as_json: bool) -> None:
    """Sends every log line from ``level`` upwards to standard error, replacing what was set up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else PlainLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("nats").setLevel(logging.WARNING)
