"""Tables of the fields that structs declare, and of anything else; used by generate.py."""

from __future__ import annotations

import json
import types
import typing
from datetime import date
from typing import Any

import msgspec
from docstrings import meanings_of
from msgspec import NODEFAULT, Meta, UnsetType

from penstock.config.section import ALL, Section

COMPUTED = "computed"
NO_LIMIT = 1e9
"""Limits from here on only keep infinity out; they are not worth a word."""


def field_table(
    kind: type[msgspec.Struct],
    beyond: type[msgspec.Struct] | None = None,
    only: list[str] | None = None,
) -> str:
    """Name, type, default, meaning of each field; without those of ``beyond``.

    Of settings also whether a reload takes them over, by the marker of their section.
    """
    left_out = set(beyond.__struct_fields__) if beyond else set()
    meanings, is_section = meanings_of(kind), issubclass(kind, Section)
    rows = [
        [
            f"`{field.name}`",
            type_words(field.type),
            default_words(field),
            meanings.get(field.name, ""),
            *([reloaded(kind, field.name)] if is_section else []),
        ]
        for field in msgspec.structs.fields(kind)
        if field.name not in left_out and (only is None or field.name in only)
    ]
    titles = ["field", "type", "default", "meaning", *(["reload"] if is_section else [])]
    return table(titles, rows) if rows else ""


def reloaded(section: type[Section], name: str) -> str:
    """``restart`` where an executor takes a setting over at its start only."""
    waits = section.of_process == ALL or name in section.of_process
    return "restart" if waits else "yes"


def type_words(kind: Any) -> str:
    """A type as people write it, with its limits."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return f"{type_words(arguments[0])}{limits(arguments[1:])}"
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        named = [part for part in arguments if part not in (type(None), UnsetType)]
        absent = " or none" if type(None) in arguments else ""
        return " or ".join(type_words(part) for part in named) + absent
    if origin is tuple:
        return f"list of {type_words(arguments[0])}"
    if origin is dict:
        return f"table of {type_words(arguments[1])}"
    if isinstance(kind, type) and issubclass(kind, Section):
        return "table"
    simple = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    simple |= {bytes: "base64 text", Any: "anything", date: "date"}
    return simple.get(kind, getattr(kind, "__name__", str(kind)))


def limits(notes: tuple[Any, ...]) -> str:
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    bounds = [
        f"{sign} {value:g}"
        for note in notes
        if isinstance(note, Meta)
        for name, sign in signs.items()
        if (value := getattr(note, name)) is not None and abs(value) < NO_LIMIT
    ]
    patterns = [f"`{note.pattern}`" for note in notes if isinstance(note, Meta) and note.pattern]
    return f" ({', '.join(bounds + patterns)})" if bounds or patterns else ""


def default_words(field: Any) -> str:
    if field.default is not NODEFAULT:
        value = field.default
    elif field.default_factory is NODEFAULT:
        return "required"
    elif field.default_factory in (dict, list):
        value = field.default_factory()
    else:
        return COMPUTED
    if value is None:
        return "none"
    if isinstance(value, (tuple, dict, str, bytes)) and not value:
        return "empty"
    return f"`{toml_value(value)}`"


def toml_value(value: Any) -> str:
    """A value as it stands in `penstock.toml`; numbers without a fraction as whole ones."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, msgspec.Struct):
        parts = (f"{name} = {toml_value(getattr(value, name))}" for name in value.__struct_fields__)
        return f"{{ {', '.join(parts)} }}"
    if isinstance(value, float):
        return f"{value:.15g}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else str(value)


def table(titles: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return ""
    lines = [titles, ["---"] * len(titles), *([cell(text) for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")
