"""Times and sizes as text, and the lengths of time that commands accept."""

from __future__ import annotations

import re
from datetime import datetime

UNKNOWN = "-"
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_LONG = ((86400, 3600, ("d", "h")), (3600, 60, ("h", "min")), (60, 1, ("min", "s")))
"""Units in seconds: a length, its smaller part, and their names."""
_ENDLESS_SECONDS = 100 * 366 * 86400.0
_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|min|m|h|d)?")


def seconds(value: float | None) -> str:
    """``3 ms``, ``0.25 s``, ``31 s``, ``2 min 5 s``, ``3 h``, ``1 d 2 h``; a dash when unknown."""
    if value is None or not value > -_ENDLESS_SECONDS:
        return UNKNOWN
    if value >= _ENDLESS_SECONDS:
        return "over 100 years"
    if 0 < value < 0.1:
        return f"{value * 1000:.0f} ms" if value >= 0.001 else "<1 ms"
    if value < 10:
        return f"{value:.2g} s"
    whole = round(value)
    if whole < 120:
        return f"{whole} s"
    for large, small, names in _LONG:
        if whole >= large:
            rest = whole % large // small
            return f"{whole // large} {names[0]}" + (f" {rest} {names[1]}" if rest else "")
    return f"{whole} s"


def rate(value: float | None) -> str:
    """A rate per second, as a number without its unit."""
    return UNKNOWN if value is None else f"{value:.2g}" if value < 10 else f"{value:.0f}"


def share(value: float | None) -> str:
    """A share as a percentage: ``0 %``, ``0.3 %``, ``12 %``."""
    if value is None:
        return UNKNOWN
    percent = value * 100
    return f"{percent:.1f} %" if 0 < percent < 10 else f"{percent:.0f} %"


def count(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


def used(part: int | None, whole: int | None) -> str:
    """So many of so many."""
    return UNKNOWN if part is None or whole is None else f"{part} of {whole}"


def memory(value: int | None) -> str:
    if value is None:
        return UNKNOWN
    mebibytes = value / 1024 / 1024
    return f"{mebibytes:.0f} MiB" if mebibytes < 1024 else f"{mebibytes / 1024:.1f} GiB"


def error(text: str) -> str:
    """``KeyError: 'a'`` of ``builtins.KeyError: 'a'``; other types keep their module."""
    return text.removeprefix("builtins.")


def clock(at: datetime | None) -> str:
    """Local time of day, with the day when it is not today."""
    if at is None:
        return UNKNOWN
    local = at.astimezone()
    today = datetime.now(local.tzinfo).date() == local.date()
    return local.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")


def ended(state: str, at: datetime | None, reason: str = "") -> str:
    """``It was cancelled at 12:00:01: the customer called.``"""
    verb = {"cancelled": "was cancelled", "dead": "died"}.get(state, state)
    because = f": {reason.rstrip('.')}" if reason else ""
    return f"It {verb} at {clock(at)}{because}."


def read_seconds(text: str) -> float:
    """A length of time: ``90``, ``1.5s``, ``10m``, ``2h``, ``1d``.

    Raises:
        ValueError: names what was found and what was expected.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"found {text!r}, expected a length of time such as 90, 1.5s, 10m, 2h, 1d")
    return float(match["number"]) * _UNITS[match["unit"] or "s"]


def ago(value: float | None) -> str:
    """How long ago something happened."""
    return "never" if value is None else f"{seconds(value)} ago"
