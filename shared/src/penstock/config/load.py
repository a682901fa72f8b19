"""Reading settings: file, environment, flags; every error says the next step."""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from penstock.config.settings import Settings

FILE = "penstock.toml"
ENVIRONMENT_PREFIX = "PENSTOCK_"
_FILE_VARIABLE = "PENSTOCK_CONFIG"


class ConfigError(ValueError):
    """Settings that cannot be used: where, what was found, what was expected."""


def load(
    path: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings in force.

    Args:
        path: a TOML file; None takes ``PENSTOCK_CONFIG``, then ``penstock.toml`` here if it exists.
        environment: variables ``PENSTOCK_SECTION__KEY`` (values as TOML, else taken as text).
        flags: dotted names, e.g. ``{"nats.url": "nats://127.0.0.1:4222"}``; None values are skipped.

    Raises:
        ConfigError: unreadable file, unknown key (with the nearest known one), wrong type.
    """
    env = os.environ if environment is None else environment
    tree = _read_file(path or env.get(_FILE_VARIABLE))
    for name, value in _from_environment(env):
        _put(tree, name, value)
    for dotted, value in (flags or {}).items():
        if value is not None:
            _put(tree, dotted.split("."), value)
    return check(tree)


def check(tree: Mapping[str, Any]) -> Settings:
    """Settings from plain tables. Raises ConfigError."""
    try:
        return msgspec.convert(tree, Settings, strict=True)
    except msgspec.ValidationError as error:
        raise ConfigError(_explain(str(error), tree)) from error


def dump(settings: Settings) -> str:
    """Settings as JSON, secrets masked."""
    tree: dict[str, Any] = msgspec.to_builtins(settings)
    if tree["nats"]["password"]:
        tree["nats"]["password"] = "***"
    return json.dumps(tree, indent=2)


def _read_file(path: str | Path | None) -> dict[str, Any]:
    if path is None:
        if not Path(FILE).is_file():
            return {}
        path = FILE
    try:
        return tomllib.loads(Path(path).read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; give --config a file that exists") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path}: cannot be read as TOML: {error}") from error


def _from_environment(env: Mapping[str, str]) -> Iterator[tuple[list[str], Any]]:
    for name, text in env.items():
        if name.startswith(ENVIRONMENT_PREFIX) and name != _FILE_VARIABLE:
            yield name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__"), _value(text)


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def _put(tree: dict[str, Any], path: list[str], value: Any) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"{'.'.join(path)}: {key!r} is a value, not a table")
    tree[path[-1]] = value


_UNKNOWN = re.compile(r"unknown field `(?P<key>[^`]*)`(?: - at `\$?\.?(?P<where>[^`]*)`)?")
_AT = re.compile(r"(?P<what>.*) - at `\$\.?(?P<where>[^`]*)`", re.S)


def _explain(text: str, tree: Mapping[str, Any]) -> str:
    if unknown := _UNKNOWN.search(text):
        where, key = unknown["where"] or "", unknown["key"]
        known = sorted(_known_keys(where))
        near = difflib.get_close_matches(key, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
        return f"{f'[{where}] ' if where else ''}unknown setting {key!r}; {hint}"
    if at := _AT.match(text):
        found = _lookup(tree, at["where"])
        return f"{at['where']}: {at['what'][0].lower()}{at['what'][1:]}, found {found!r}"
    return text


def _known_keys(where: str) -> set[str]:
    schema: Any = Settings
    for part in filter(None, where.split(".")):
        fields = {f.encode_name: f.type for f in msgspec.structs.fields(schema)}
        if part not in fields:  # below a table of named tables, msgspec writes [...]
            part = part.split("[")[0]
        kind = fields.get(part)
        if kind is None:
            return set()
        arguments = getattr(kind, "__args__", ())
        schema = arguments[1] if len(arguments) == 2 else kind
    return {f.encode_name for f in msgspec.structs.fields(schema)}


def _lookup(tree: Any, where: str) -> Any:
    for part in filter(None, re.split(r"[.\[\]]+", where)):
        tree = tree.get(part, tree) if isinstance(tree, Mapping) else tree
    return tree if not isinstance(tree, Mapping) else "a table"
