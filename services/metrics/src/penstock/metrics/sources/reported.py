"""A look as a program, a page or a row states it: figures by the names of `SourceLook`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.metrics.core.sources.look import SourceFault, SourceLook

_COUNTS = frozenset({"waiting", "claimed", "delayed", "arrived", "ended"})
_SECONDS = frozenset({"oldest_seconds", "behind_seconds"})
_OTHERS = frozenset({"epoch", "exact"})


def look_of(figures: Mapping[str, Any]) -> SourceLook | SourceFault:
    """The look, or a fault that names what is missing, unknown or no number.

    Args:
        figures: numbers of any type; those that are None are absent.
    """
    values: dict[str, Any] = {}
    for name, value in figures.items():
        if value is None:
            continue
        if name in _COUNTS | _SECONDS:
            number = _number(value)
            if number is None or (name in _COUNTS and not number.is_integer()):
                return SourceFault(f"found no number of {name}: {type(value).__name__}")
            values[name] = int(number) if name in _COUNTS else number
        elif name in _OTHERS:
            values[name] = value
        else:
            return SourceFault(f"found the figure {name[:40]!r}, expected {_expected()}")
    if "waiting" not in values:
        return SourceFault("found no figure 'waiting'")
    try:
        return msgspec.convert(values, SourceLook, strict=True)
    except msgspec.ValidationError as error:
        return SourceFault(str(error))


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _expected() -> str:
    return ", ".join(sorted(_COUNTS | _SECONDS | _OTHERS))
