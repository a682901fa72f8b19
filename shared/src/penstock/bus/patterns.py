"""Subjects with wildcards: ``*`` is one token, a final ``>`` one or more."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject matches a pattern."""
    return compiled(pattern).fullmatch(subject) is not None


@lru_cache(4096)
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern as a regular expression, which whole subjects match."""
    *parts, last = ["[^.]*" if name == "*" else re.escape(name) for name in pattern.split(".")]
    parts.append(".*" if last == re.escape(">") else last)
    return re.compile(r"\.".join(parts), re.DOTALL)


def covering(patterns: Sequence[str]) -> str:
    """One pattern that matches every subject that one of these matches."""
    split = [pattern.split(".") for pattern in patterns]
    if len(split) == 1:
        return patterns[0]
    columns = list(zip(*split, strict=False))  # as long as the shortest
    if len({len(tokens) for tokens in split}) == 1 and all(one[-1] != ">" for one in split):
        return ".".join(column[0] if len({*column}) == 1 else "*" for column in columns)
    shared = 0
    while shared < len(columns) - 1 and len({*columns[shared]}) == 1:
        shared += 1
    return ".".join([*split[0][:shared], ">"])
