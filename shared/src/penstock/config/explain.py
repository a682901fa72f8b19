"""Explanations of invalid settings: where, what was found, what was expected."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from penstock.config.settings import Settings

Path = tuple[str, ...]

_UNKNOWN = re.compile(r"unknown field `(?P<key>[^`]*)`(?: - at `(?P<where>[^`]*)`)?")
_MISSING = re.compile(r"Object missing required field `(?P<key>[^`]*)`")
_AT = re.compile(r"(?P<what>.*) - at `(?P<where>[^`]*)`", re.S)
_STEP = re.compile(r"\[\.\.\.\]|\[\d+\]|[^.\[\]$]+")
_SOME_KEY = "[...]"
_TYPE = re.compile(r"`(\w+)`")
_GOT = re.compile(r", got `\w+`")
_TYPES = {
    "float": "a number",
    "int": "a whole number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "date": "a date",
    "null": "nothing",
}


def explain(
    error: str,
    tree: Mapping[str, Any],
    origins: Mapping[Path, str],
    root: type = Settings,
    above: Path = (),
    elsewhere: str = "",
) -> str:
    """One sentence for msgspec's complaint about ``tree``.

    Args:
        origins: where a value came from, by its path, such as ``from PENSTOCK_PREFIX``.
        elsewhere: where all others came from, such as ``in penstock.toml``; empty for not known.
        root: what the tree was read as.
        above: where in the file the tree begins.
    """
    if unknown := _UNKNOWN.search(error):
        where, key = _path(unknown["where"] or "", tree, root), unknown["key"]
        place = f"[{'.'.join(above + where)}] " if above + where else ""
        hint = _hint(root, where, key)
        return f"{place}unknown setting {key!r}; {hint}{_origin(origins, (*where, key), elsewhere)}"
    at = _AT.match(error)
    where = _path(at["where"], tree, root) if at else ()
    named = ".".join(above + where).replace(".[", "[")
    what = at["what"] if at else error
    if at is None or not what.startswith(("Expected", "Invalid")):  # a rule of the table's own
        what = _MISSING.sub(r"The setting '\g<key>' is missing", what)
        text = f"{named}: {what[0].lower()}{what[1:]}" if named else what
        return f"{text}{_origin(origins, where, elsewhere)}"
    expected = _expected(root, where) or _in_words(what[0].lower() + what[1:])
    value, origin = _value_at(tree, where, what), _origin(origins, where, elsewhere)
    return f"{named}: {expected}, found {value}{origin}"


def hint(name: str, names: Iterable[str]) -> str:
    """A suggestion in place of an unknown name."""
    names = sorted(names)
    if near := difflib.get_close_matches(name, names, n=1):
        return f"did you mean {near[0]!r}?"
    return f"known: {', '.join(names)}"


def kind_at(path: Sequence[str], root: type = Settings) -> inspect.Type | None:
    """The declared type of a setting; None where there is no such setting."""
    kind: inspect.Type | None = _type_info(root)
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


@cache
def _type_info(root: type) -> inspect.Type:
    """Takes ten milliseconds for all settings, and is asked for with each variable."""
    return inspect.type_info(root)


def takes_text(path: Sequence[str]) -> bool:
    """Whether a setting is a string (or one of some words)."""
    kind = kind_at(path)
    words = isinstance(kind, inspect.LiteralType) and isinstance(kind.values[0], str)
    return words or isinstance(kind, inspect.StrType)


def _path(where: str, tree: Mapping[str, Any], root: type) -> Path:
    """``$.pools[...].kind`` with the pool's name in the place of the dots."""
    steps: list[str] = []
    for step in _STEP.findall(where):
        steps.append(_culprit(tree, steps, root) if step == _SOME_KEY else step)
    return tuple(steps)


def _culprit(tree: Mapping[str, Any], above: Sequence[str], root: type) -> str:
    """The key below ``above`` whose value, taken alone, is wrong too."""
    table = _look_up(tree, above)
    for key, value in table.items() if isinstance(table, Mapping) else ():
        alone: Any = {key: value}
        for step in reversed(above):
            alone = {step: alone}
        try:
            msgspec.convert(alone, root, strict=True)
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


def _keys(root: type, path: Sequence[str]) -> list[str]:
    kind = kind_at(path, root)
    fields = kind.fields if isinstance(kind, inspect.StructType) else ()
    return sorted(field.encode_name for field in fields)


def _hint(root: type, where: Path, key: str) -> str:
    suggestion = hint(key, _keys(root, where))
    homes = [f"[{section}]" for section in _keys(root, ()) if key in _keys(root, (section,))]
    if homes and not suggestion.startswith("did"):
        return f"it belongs in {' or '.join(homes)}"
    return suggestion


def _expected(root: type, where: Path) -> str:
    kind = kind_at(where, root)
    if isinstance(kind, inspect.LiteralType):
        return f"expected one of {', '.join(map(repr, kind.values))}"
    if isinstance(kind, inspect.StructType | inspect.DictType):
        return f"expected a table: [{'.'.join(where)}]"
    if isinstance(kind, inspect.VarTupleType):
        return 'expected a list: ["…", "…"]'
    return ""


def _in_words(what: str) -> str:
    """``expected `float` >= 1.0, got `str``` as people name these types in a TOML file."""
    words = _TYPE.sub(lambda match: _TYPES.get(match[1], match[0]), _GOT.sub("", what))
    return re.sub(r"(\d)\.0\b", r"\1", words)


def _value_at(tree: Mapping[str, Any], where: Path, what: str) -> str:
    value = _look_up(tree, where)
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and _GOT.search(what):
        return f"the text {json.dumps(value, ensure_ascii=False)}"
    return repr(value)


def _origin(origins: Mapping[Path, str], path: Path, elsewhere: str) -> str:
    """Where the value at ``path`` came from; a table's may come from several places."""
    if path not in origins and any(origin[: len(path)] == path for origin in origins):
        return ""
    origin = origins.get(path, elsewhere)
    return f" ({origin})" if origin else ""
