"""Tables of what structs declare, and of anything else; used by generate.py."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import types
import typing
from datetime import date
from typing import Any

import msgspec
from msgspec import NODEFAULT, Meta, UnsetType

COMPUTED = "computed"
NO_LIMIT = 1e9
"""Limits from here on only keep infinity out; they are not worth a word."""


def field_table(
    kind: type[msgspec.Struct],
    beyond: type[msgspec.Struct] | None = None,
    only: list[str] | None = None,
) -> str:
    """Name, type, default, meaning of each field; without those of ``beyond``."""
    left_out = set(beyond.__struct_fields__) if beyond else set()
    meanings = meanings_of(kind)
    rows = [
        [
            f"`{field.name}`",
            type_words(field.type),
            default_words(field),
            meanings.get(field.name, ""),
        ]
        for field in msgspec.structs.fields(kind)
        if field.name not in left_out and (only is None or field.name in only)
    ]
    return table(["field", "type", "default", "meaning"], rows) if rows else ""


def meanings_of(kind: type[msgspec.Struct]) -> dict[str, str]:
    """What docstrings say about each field: `Attributes:` sections, and strings below fields."""
    found: dict[str, str] = {}
    for above in reversed(kind.__mro__):
        if above is not msgspec.Struct and issubclass(above, msgspec.Struct):
            found |= from_attributes(above, kind.__struct_fields__)
            found |= from_strings_below(above)
    return found


def from_attributes(kind: type, names: tuple[str, ...]) -> dict[str, str]:
    """Reads ``name: meaning`` and ``one / other: meaning`` out of the section, many to a line."""
    doc = inspect.cleandoc(kind.__doc__ or "")
    _, _, section = doc.partition("Attributes:\n")
    text = " ".join(section.split())
    if not text or not names:
        return {}
    name = rf"`*(?:{'|'.join(map(re.escape, names))})`*"
    starts = list(re.finditer(rf"(?:^|(?<=\s))({name}(?: / {name})*): ", text))
    ends = [start.start() for start in starts[1:]] + [len(text)]
    found = {}
    for start, end in zip(starts, ends, strict=True):
        meaning = text[start.end() : end].strip().rstrip(";")
        for each in start[1].split(" / "):
            found[each.strip("`")] = capital(meaning)
    return found


def from_strings_below(kind: type) -> dict[str, str]:
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except (OSError, TypeError):
        return {}
    found = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            found[field.target.id] = " ".join(str(after.value.value).split())
    return found


def prose(kind: type) -> str:
    """A docstring without its `Attributes:`."""
    text, _, _ = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")
    return text.strip().replace("``", "`")


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
    simple = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    simple |= {bytes: "base64 text", Any: "anything", date: "date"}
    return simple.get(kind, getattr(kind, "__name__", str(kind)))


def limits(notes: tuple[Any, ...]) -> str:
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    found = [
        f"{sign} {value:g}"
        for note in notes
        if isinstance(note, Meta)
        for name, sign in signs.items()
        if (value := getattr(note, name)) is not None and abs(value) < NO_LIMIT
    ]
    patterns = [f"`{note.pattern}`" for note in notes if isinstance(note, Meta) and note.pattern]
    return f" ({', '.join(found + patterns)})" if found or patterns else ""


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
    return f"`{str(value).lower() if isinstance(value, bool) else value!r}`"


def table(titles: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return ""
    lines = [titles, ["---"] * len(titles), *([cell(text) for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]
