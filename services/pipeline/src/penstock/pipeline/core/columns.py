"""Columns of events: one for each field name of any event, so that schemas grow by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from penstock.events.envelope import Event

RESERVED = frozenset(
    {"stream_sequence", "stored_at", "subject", "body", "raw", "set", "day", "event", "batch"}
)
"""The lake's own columns; an event's field of the same name gets the suffix ``_``."""
Kind = Literal["string", "bigint", "double", "boolean", "timestamp", "json"]
"""Spark's types, and text of what has none: nested values, and what two events disagree about."""
_ENVELOPE = {"id", "at"}


class Field(msgspec.Struct, frozen=True, array_like=True):
    """A field of one event: ``default`` where it is left out, unless it is ``required``."""

    name: str
    kind: Kind
    required: bool = False
    default: str | int | float | bool | None = None


Shapes = dict[str, tuple[Field, ...]]
"""Fields by event: all that a reader needs to know, and plain enough to be an option of it."""


def shapes(types: Iterable[type[Event]]) -> Shapes:
    """The shapes of these events, so that a column has one type over all of them."""
    fields_by_event = {event.__name__: _fields(event) for event in types}
    column = columns(fields_by_event)
    return {
        event: tuple(
            msgspec.structs.replace(field, kind="json", default=None)
            if column[column_name(field.name)] != _column_kind(field.kind)
            else field
            for field in fields
        )
        for event, fields in fields_by_event.items()
    }


def columns(shapes: Shapes) -> dict[str, str]:
    """Column name to Spark type over all events; what they disagree about is text."""
    kinds: dict[str, str] = {"type": "string"}
    for field in (field for fields in shapes.values() for field in fields):
        name, kind = column_name(field.name), _column_kind(field.kind)
        kinds[name] = kind if kinds.get(name, kind) == kind else "string"
    return kinds


def column_name(field: str) -> str:
    return f"{field}_" if field in RESERVED else field


def _column_kind(kind: Kind) -> str:
    return "string" if kind == "json" else kind


def _fields(event: type[Event]) -> tuple[Field, ...]:
    info: Any = msgspec.inspect.type_info(event)
    return tuple(
        Field(
            field.encode_name,
            kind := _kind(field.type),
            field.encode_name in _ENVELOPE,
            _default(field.default) if kind != "json" else None,
        )
        for field in info.fields
    )


def _default(value: Any) -> str | int | float | bool | None:
    return value if isinstance(value, str | int | float | bool) else None


def _kind(kind: Any) -> Kind:
    inspect: Any = msgspec.inspect
    if isinstance(kind, inspect.UnionType):
        kinds: set[Kind] = {_kind(k) for k in kind.types if not isinstance(k, inspect.NoneType)}
        return kinds.pop() if len(kinds) == 1 else "json"
    simple: Mapping[Any, Kind] = {
        inspect.StrType: "string",
        inspect.BytesType: "string",
        inspect.IntType: "bigint",
        inspect.FloatType: "double",
        inspect.BoolType: "boolean",
        inspect.DateTimeType: "timestamp",
    }
    if isinstance(kind, inspect.LiteralType) and all(isinstance(v, str) for v in kind.values):
        return "string"
    return simple.get(type(kind), "json")
