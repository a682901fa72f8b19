"""Values that are not shown: wherever a payload is, by the names of its fields. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

MASK = "***"
ALWAYS = ("password", "secret", "token", "api_key", "authorization")
"""Names that are masked whoever dispatched the job."""
_DEEPEST = 50


def masked(value: Any, names: Collection[str], depth: int = 0) -> Any:
    """``value`` with what lies under one of these names replaced, at any depth.

    Args:
        value: plain: what a MessagePack or JSON decoder gives.
        names: compared without regard to case.
    """
    folded = {name.casefold() for name in names}
    return _masked(value, folded, depth) if folded else value


def _masked(value: Any, names: set[str], depth: int) -> Any:
    if depth > _DEEPEST:
        return MASK
    if isinstance(value, Mapping):
        return {
            key: MASK if str(key).casefold() in names else _masked(held, names, depth + 1)
            for key, held in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_masked(held, names, depth + 1) for held in value]
    return value
