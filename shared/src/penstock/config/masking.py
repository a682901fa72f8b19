"""Values without their secrets, wherever a call, a result or a setting is shown. Pure.

`penstock.config.secret_names` decides by names. Names are looked for where programs put them: keys
of mappings, pairs (``["Authorization", ...]``), ``{"name": ..., "value": ...}``, options before
their value (``--password x``), and inside text: JSON, ``name=value``, header lines. The user part
of an address and what follows ``Bearer`` are hidden under any name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from penstock.config.secret_names import hides, is_secret, spelled

MASK = "***"
_DEEPEST = 50
_LONGEST_NAME = 100
_NAMING = frozenset({"name", "key", "field", "header", "parameter", "param", "option", "variable"})
_HOLDING = frozenset({"value", "values", "val", "content", "data", "text", "default", "current"})
_ASSIGNED = re.compile(
    r"""(?<![\w.\-])(?P<name>[\w.\-]++)(?:\\*+["'])?+\s*+[:=]\s*+""",
)
_VALUE = re.compile(
    r""""(?:[^"\\]|\\.)*+"?+|'(?:[^'\\]|\\.)*+'?+"""
    r"""|(?:(?:Bearer|Basic|Digest|Negotiate|Token|ApiKey)\s++)?+[^\s;&]++""",
    re.IGNORECASE | re.DOTALL,
)
_HEADER = re.compile(
    r"(?<![\w.\-])((?:proxy-)?authorization|(?:set-)?cookie)"
    r"(\s*+:\s*+|(?<=n)\s++(?=(?:Basic|Bearer|Digest|Negotiate)\s))[^\r\n]++",
    re.IGNORECASE,
)
_USER_PART = re.compile(r"(?<=://)(?:[^\s/?#]+(?=@)|[^\s/?#@:]*+:(?!\d+/)(?:(?!://)[^\s@])*+(?=@))")
"""Up to the last ``@`` of the host's part; a password with a ``/`` counts, a port does not."""
_BEARER = re.compile(r"\b(Bearer\s++)[\w.~+/\-]{8,}=*", re.IGNORECASE)
_BEHIND_HOST = re.compile(r"(://[^\s/?#,]+)(?:/[^\s,]+|[?#][^\s,]*)")
"""What may be a secret as a whole, as in the address of a chat's webhook."""
_LITERALS: dict[str, Any] = {
    "null": None, "None": None, "true": True, "false": False, "True": True, "False": False
}  # fmt: skip
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?\Z")


def masked(value: Any, names: Collection[str] = ()) -> Any:
    """``value`` with its secrets replaced by ``***``, at any depth.

    Args:
        value: plain: what a MessagePack, JSON or TOML decoder gives.
        names: names whose values are hidden besides those that hold secrets by their words;
            compared without regard to case and separators.

    Returns:
        A copy; tuples become lists. JSON in a text stays JSON, encoded anew where it changed.
    """
    return _masked(value, spelled(names), 0)


def hosts_only(value: Any) -> Any:
    """Plain values, or a text, with ``/***`` in place of what stands behind hosts in addresses."""
    if isinstance(value, dict):
        return {name: hosts_only(below) for name, below in value.items()}
    if isinstance(value, list):
        return [hosts_only(below) for below in value]
    return _BEHIND_HOST.sub(rf"\1/{MASK}", value) if isinstance(value, str) else value


def masked_settings(tree: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Tables of settings without their secrets.

    Args:
        tree: as TOML has them.
        names: ``encryption.masked``: what it hides in jobs' arguments, it hides in those of
            schedules; elsewhere these names may be those of settings.
    """
    shown: dict[str, Any] = masked(tree)
    for name, table in tree.get("schedules", {}).items():
        if "arguments" in table:
            shown["schedules"][name]["arguments"] = masked(table["arguments"], names)
    return shown


def _masked(value: Any, names: frozenset[str], depth: int) -> Any:
    if depth > _DEEPEST:
        return MASK
    if isinstance(value, Mapping):
        return _mapping(value, names, depth + 1)
    if isinstance(value, (list, tuple)):
        return _list(value, names, depth + 1)
    if isinstance(value, str):
        return _text(value, names, depth + 1)
    if isinstance(value, (bytes, bytearray)):
        return _bytes(bytes(value), names, depth + 1)
    return value


def _mapping(value: Mapping[Any, Any], names: frozenset[str], depth: int) -> dict[Any, Any]:
    names_a_secret = any(
        str(key).casefold() in _NAMING and isinstance(below, str) and is_secret(below, names)
        for key, below in value.items()
    )
    shown = {}
    for key, below in value.items():
        name = _name(key)
        hidden = hides(name, below, names) or (names_a_secret and name.casefold() in _HOLDING)
        safe_key = _text(key, names, depth) if isinstance(key, str) else key
        shown[safe_key] = MASK if hidden else _masked(below, names, depth)
    return shown


def _list(value: Sequence[Any], names: frozenset[str], depth: int) -> list[Any]:
    if len(value) == 2 and _is_name(value[0]) and hides(_name(value[0]), value[1], names):
        return [value[0], MASK]
    shown = [_masked(below, names, depth) for below in value]
    for place, option in enumerate(value[:-1]):
        if _is_name(option) and _name(option).startswith("-") and is_secret(_name(option), names):
            shown[place + 1] = MASK
    return shown


def _is_name(value: Any) -> bool:
    if not isinstance(value, (str, bytes)) or len(value) > _LONGEST_NAME:
        return False
    return not any(char in _name(value) for char in "=\n")


def _name(key: Any) -> str:
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)


def _bytes(value: bytes, names: frozenset[str], depth: int) -> bytes:
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return value
    return _text(text, names, depth).encode("utf-8", "surrogatepass")


def _text(text: str, names: frozenset[str], depth: int) -> str:
    if text.lstrip()[:1] in ("{", "[", '"'):
        try:
            tree = msgspec.json.decode(text)
            shown = _masked(tree, names, depth)
            if shown != tree:
                return msgspec.json.encode(shown).decode()
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass  # no JSON: read as any text
    text = _USER_PART.sub(MASK, text)
    text = _HEADER.sub(rf"\1\2{MASK}", text)
    text = _without_assigned(text, names)
    return _BEARER.sub(rf"\1{MASK}", text)


def _without_assigned(text: str, names: frozenset[str]) -> str:
    """The text without what is assigned to names of secrets.

    The value of any other name is searched as well: in ``ValueError: password=x`` and in
    ``https://host?token=x`` the first name only stands before that of the secret.
    """
    pieces, copied_to = [], 0
    secret_names: dict[str, bool] = {}
    for match in _ASSIGNED.finditer(text):
        if match.start() < copied_to:
            continue
        name = match["name"]
        if name not in secret_names:
            secret_names[name] = is_secret(name, names)
        # Values are read for secrets only, else a long text of names would be read for each.
        if not secret_names[name]:
            continue
        value = _VALUE.match(text, match.end())
        if value is None or not hides(name, _literal(value[0]), names):
            continue
        quote = value[0][0] if value[0][0] in "\"'" else ""
        pieces += [text[copied_to : match.end()], quote, MASK, quote]
        copied_to = value.end()
    return "".join([*pieces, text[copied_to:]])


def _literal(value: str) -> Any:
    """The value of unquoted text in JSON or Python, else the text."""
    bare = value.rstrip("}]),")
    if _NUMBER.match(bare):
        return float(bare)
    return _LITERALS.get(bare, value.strip("\"'"))
