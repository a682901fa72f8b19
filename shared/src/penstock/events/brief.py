"""How structs with encoded calls look when printed: bytes by their size, never by their content.

A ``repr`` ends up in logs, tracebacks and the output of failed tests, where nothing masks it.
"""

from __future__ import annotations

from typing import Any

import msgspec


def brief(struct: msgspec.Struct) -> str:
    """For ``__repr__``: fields that are not at their default, bytes as ``<12 bytes>``."""
    fields = (f"{name}={value!r}" for name, value in brief_fields(struct))
    return f"{type(struct).__name__}({', '.join(fields)})"


def brief_fields(struct: msgspec.Struct) -> list[tuple[str, Any]]:
    """For ``__rich_repr__``: the same fields as pairs of name and value."""
    values = ((field, getattr(struct, field.name)) for field in msgspec.structs.fields(struct))
    return [(field.name, _sized(value)) for field, value in values if value != field.default]


class _Size(msgspec.Struct, frozen=True):
    count: int

    def __repr__(self) -> str:
        return f"<{self.count} bytes>"


def _sized(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, msgspec.Raw)):
        return _Size(len(bytes(value)))
    if isinstance(value, dict):
        return {key: _sized(below) for key, below in value.items()}
    return value
