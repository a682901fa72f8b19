"""What is wrong with settings, in words: where, what was found, what was expected."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import inspect

from penstock.config.settings import Settings

Path = tuple[str, ...]

_UNKNOWN = re.compile(r"unknown field `(?P<key>[^`]*)`(?: - at `(?P<where>[^`]*)`)?")
_AT = re.compile(r"(?P<what>.*) - at `(?P<where>[^`]*)`", re.S)
_STEP = re.compile(r"\[\.\.\.\]|\[\d+\]|[^.\[\]$]+")
_SOME_KEY = "[...]"


def explain(error: str, tree: Mapping[str, Any], origins: Mapping[Path, str]) -> str:
    """One sentence for msgspec's complaint about ``tree``.

    Args:
        origins: where a value came from, by its path, if not from the file.
    """
    if unknown := _UNKNOWN.search(error):
        where, key = _path(unknown["where"] or "", tree), unknown["key"]
        place = f"[{'.'.join(where)}] " if where else ""
        return f"{place}unknown setting {key!r}; {_hint(where, key)}{_from(origins, (*where, key))}"
    if at := _AT.match(error):
        where = _path(at["where"], tree)
        named = ".".join(where).replace(".[", "[")
        expected = _expected(where) or at["what"][0].lower() + at["what"][1:]
        return f"{named}: {expected}, found {_found(tree, where)}{_from(origins, where)}"
    return error


def kind_at(path: Sequence[str]) -> inspect.Type | None:
    """The declared type of a setting; None where there is no such setting."""
    kind: inspect.Type | None = inspect.type_info(Settings)
    for step in path:
        if isinstance(kind, inspect.StructType):
            kind = next((f.type for f in kind.fields if f.encode_name == step), None)
        elif isinstance(kind, inspect.DictType):
            kind = kind.value_type
        elif isinstance(kind, inspect.VarTupleType):
            kind = kind.item_type
        else:
            return None
    return kind


def takes_text(path: Sequence[str]) -> bool:
    """Whether a setting is a string (or one of some words)."""
    kind = kind_at(path)
    words = isinstance(kind, inspect.LiteralType) and isinstance(kind.values[0], str)
    return words or isinstance(kind, inspect.StrType)


def _path(where: str, tree: Mapping[str, Any]) -> Path:
    """``$.pools[...].kind`` with the pool's name in the place of the dots."""
    steps: list[str] = []
    for step in _STEP.findall(where):
        steps.append(_culprit(tree, steps) if step == _SOME_KEY else step)
    return tuple(steps)


def _culprit(tree: Mapping[str, Any], above: Sequence[str]) -> str:
    """The key below ``above`` whose value, taken alone, is wrong too."""
    table = _look_up(tree, above)
    for key, value in table.items() if isinstance(table, Mapping) else ():
        alone: Any = {key: value}
        for step in reversed(above):
            alone = {step: alone}
        try:
            msgspec.convert(alone, Settings, strict=True)
        except msgspec.ValidationError:
            return str(key)
    return _SOME_KEY


def _look_up(tree: Any, path: Sequence[str]) -> Any:
    for step in path:
        if isinstance(tree, Mapping):
            tree = tree.get(step)
        elif isinstance(tree, Sequence) and step[1:-1].isdigit():
            tree = tree[int(step[1:-1])]
    return tree


def _keys(path: Sequence[str]) -> list[str]:
    kind = kind_at(path)
    fields = kind.fields if isinstance(kind, inspect.StructType) else ()
    return sorted(field.encode_name for field in fields)


def _hint(where: Path, key: str) -> str:
    known = _keys(where)
    if near := difflib.get_close_matches(key, known, n=1):
        return f"did you mean {near[0]!r}?"
    if homes := [f"[{section}]" for section in _keys(()) if key in _keys((section,))]:
        return f"it belongs in {' or '.join(homes)}"
    return f"known here: {', '.join(known)}"


def _expected(where: Path) -> str:
    kind = kind_at(where)
    if isinstance(kind, inspect.LiteralType):
        return f"expected one of {', '.join(map(repr, kind.values))}"
    if isinstance(kind, inspect.StructType | inspect.DictType):
        return f"expected a table: [{'.'.join(where)}]"
    if isinstance(kind, inspect.VarTupleType):
        return 'expected a list: ["…", "…"]'
    return ""


def _found(tree: Mapping[str, Any], where: Path) -> str:
    found = _look_up(tree, where)
    return "a table" if isinstance(found, Mapping) else repr(found)


def _from(origins: Mapping[Path, str], path: Path) -> str:
    return f" (from {origins[path]})" if path in origins else ""
