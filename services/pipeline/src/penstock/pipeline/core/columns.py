"""Columns of events: one for each field name of any event, so that schemas grow by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from penstock.events.envelope import Event

RESERVED = frozenset(
    {"stream_sequence", "stored_at", "subject", "body", "raw", "set", "day", "event", "batch"}
)
"""What the lake itself says of a row; an event's field of that name gets ``_`` behind it."""
TEXT = "string"


def event_columns(types: Iterable[type[Event]]) -> dict[str, str]:
    """Field name to Spark type over all events; nested values and disagreements stay JSON text."""
    found: dict[str, str] = {"type": TEXT}
    for event in types:
        for field in msgspec.inspect.type_info(event).fields:  # type: ignore[attr-defined]
            kind = _spark_type(field.type)
            name = field.encode_name
            found[name] = kind if found.get(name, kind) == kind else TEXT
    return found


def column_name(field: str) -> str:
    return f"{field}_" if field in RESERVED else field


def _spark_type(kind: Any) -> str:
    inspect: Any = msgspec.inspect
    if isinstance(kind, inspect.UnionType):
        kinds = {_spark_type(one) for one in kind.types if not isinstance(one, inspect.NoneType)}
        return kinds.pop() if len(kinds) == 1 else TEXT
    simple: dict[Any, str] = {
        inspect.IntType: "bigint",
        inspect.FloatType: "double",
        inspect.BoolType: "boolean",
        inspect.DateTimeType: "timestamp",
    }
    return simple.get(type(kind), TEXT)
