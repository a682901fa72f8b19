"""Subjects with wildcards: ``*`` is one token, a final ``>`` one or more."""

from __future__ import annotations

from collections.abc import Sequence


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject matches a pattern."""
    if pattern == subject:
        return True
    wanted, actual = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        if len(actual) <= len(wanted):
            return False
    elif len(actual) != len(wanted):
        return False
    return all(want in ("*", token) for want, token in zip(wanted, actual, strict=False))


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
