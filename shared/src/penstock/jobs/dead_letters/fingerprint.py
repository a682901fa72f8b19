"""What makes two failures the same one: kind of error, normalised message, top frames of own code.

What varies from one run to the next is taken out. Of the message: numbers, ids, keys, times, quoted
names, paths, and the values that own code put into it. Of the traceback: line numbers, library code
and the folders of an installation. What is left is hashed. Sentry's grouping in small: exception
type, parameterised message, in-app frames.
"""

from __future__ import annotations

import hashlib
import re

from penstock.events.job import JobError
from penstock.jobs.dead_letters.raised_line import without_values

FRAMES = 3
"""How many frames of own code count: those nearest to the error."""
_MAX_MESSAGE = 200
_LENGTH = 12

_VARYING: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`"), "<text>"),
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<id>"),
    (re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b"), "<mail>"),
    (re.compile(r"\b[a-z][a-z0-9+.-]*://\S+"), "<address>"),
    (re.compile(r"(?:\.{0,2}/[\w.=@%+-]+)+/?|\b[A-Za-z]:\\\S+"), "<path>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d[\d:.]*(?:Z|[+-]\d\d:?\d\d)?)?"), "<time>"),
    (re.compile(r"\b(?:0x[0-9a-fA-F]+|(?=[a-f]*\d)[0-9a-f]{8,})\b"), "<hex>"),
    (re.compile(r"\b(?=[A-Za-z_])[\w-]*?\d[\w-]*"), "<key>"),
    (re.compile(r"[+-]?\b\d+(?:[.,:]\d+)*"), "<n>"),
    (re.compile(r"\s+"), " "),
)  # fmt: skip
"""In this order: what is longer and says more before what is a part of it."""

_FRAME = re.compile(r'^ +File "(?P<file>[^"\n]+)", line \d+, in (?P<function>.+)$', re.MULTILINE)
_FOREIGN = re.compile(
    r"site-packages|dist-packages|/lib/python3|<frozen|<string>|/penstock/worker/"
)
_BEGINNING = "Traceback (most recent call last):"


def fingerprint(error: JobError) -> str:
    """Twelve hexadecimal digits, the same for failures that look alike."""
    parts = (error.kind, what_failed(error), *own_frames(error.traceback))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:_LENGTH]


def what_failed(error: JobError) -> str:
    """The first line of an error's message without what varies."""
    return normalised(without_values(error.message, _own_raise(error.traceback)))


def normalised(message: str) -> str:
    """The first line of a message without what varies by its form."""
    line = message.strip().partition("\n")[0][: 4 * _MAX_MESSAGE]
    for pattern, name in _VARYING:
        line = pattern.sub(name, line)
    return line[:_MAX_MESSAGE]


def own_frames(traceback: str) -> tuple[str, ...]:
    """``folder/file.py:function`` of the top frames outside libraries, innermost last.

    Of chained errors the last one's, which is what was raised in the end.
    """
    frames = [(frame["file"], frame["function"]) for frame in _frames(traceback)]
    own = [(file, function) for file, function in frames if not _FOREIGN.search(file)]
    return tuple(f"{'/'.join(file.split('/')[-2:])}:{name}" for file, name in own[-FRAMES:])


def _own_raise(traceback: str) -> str:
    """The line of code that raised the error; empty where it is not own code, or not shown."""
    frames = _frames(traceback)
    if not frames or _FOREIGN.search(frames[-1]["file"]):
        return ""
    _, _, after = frames[-1].string[frames[-1].end() :].partition("\n")
    return after.partition("\n")[0].strip()


def _frames(traceback: str) -> list[re.Match[str]]:
    return list(_FRAME.finditer(traceback.rpartition(_BEGINNING)[2]))
