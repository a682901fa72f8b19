"""Reading settings: file, environment, flags; every error says the next step."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from penstock.config import explain
from penstock.config.embedded import with_pipeline
from penstock.config.masking import masked_settings
from penstock.config.settings import Settings

FILE = "penstock.toml"
ENVIRONMENT_PREFIX = "PENSTOCK_"
FILE_VARIABLE = "PENSTOCK_CONFIG"
DEBUG_VARIABLE = "PENSTOCK_DEBUG"
CONSOLE_PORT_VARIABLE = "PENSTOCK_UP_CONSOLE_PORT"
CONSOLE_FOLDER_VARIABLE = "PENSTOCK_UP_CONSOLE_FOLDER"
NO_SETTINGS = frozenset(
    {FILE_VARIABLE, DEBUG_VARIABLE, CONSOLE_PORT_VARIABLE, CONSOLE_FOLDER_VARIABLE}
)


class ConfigError(ValueError):
    """Settings that cannot be used: where, what was found, what was expected."""


class NoBrokerKnown(ConfigError):
    """No address of a broker is configured, and no `penstock up` runs in this folder (yet)."""


def load(
    path: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings in force.

    Args:
        path: a TOML file; None takes ``PENSTOCK_CONFIG``, then ``penstock.toml`` here if it exists.
        environment: variables ``PENSTOCK_SECTION__KEY`` (values as TOML, else taken as text).
        flags: by dotted name, e.g. ``{"nats.url": "nats://127.0.0.1:4222"}``; None is skipped.

    Raises:
        ConfigError: unreadable file, unknown key (with the nearest known one), wrong type.
    """
    env = os.environ if environment is None else environment
    file = path or env.get(FILE_VARIABLE) or FILE
    tree = _read_file(path or env.get(FILE_VARIABLE) or None)
    origins: dict[explain.Path, str] = {}
    for variable, text in _from_environment(env):
        where = _spelled(tree, variable.removeprefix(ENVIRONMENT_PREFIX).lower().split("__"))
        _put(tree, where, _value(text, where))
        origins[tuple(where)] = f"from {variable}"
    for dotted, value in (flags or {}).items():
        if value is not None:
            _put(tree, dotted.split("."), value)
            origins[tuple(dotted.split("."))] = "from the command line"
    return check(tree, origins, f"in {file}")


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Tables, from values by dotted name, as a file's ``options.deadline.calm = 2`` makes them.

    Raises:
        ConfigError: a name goes through another one's value.
    """
    tree: dict[str, Any] = {}
    for dotted, value in values.items():
        _put(tree, dotted.split("."), value)
    return tree


def check(
    tree: Mapping[str, Any],
    origins: Mapping[explain.Path, str] | None = None,
    elsewhere: str = "",
) -> Settings:
    """Settings from plain tables.

    Args:
        origins: where a value came from, such as a variable.
        elsewhere: where all others came from; empty where that goes without saying.

    Raises:
        ConfigError: what was found, what was expected, and where.
    """
    try:
        return with_pipeline(msgspec.convert(tree, Settings, strict=True))
    except msgspec.ValidationError as error:
        text = explain.explain(str(error), tree, origins or {}, elsewhere=elsewhere)
        raise ConfigError(text) from error


def set_by_variables(names: Iterable[str], environment: Mapping[str, str]) -> list[str]:
    """Those of some settings, by dotted name, that an environment variable sets.

    A variable that sets a whole table sets all in it.
    """
    variables = {variable for variable, _ in _from_environment(environment)}
    return [name for name in names if any(one in variables for one in _variables_of(name))]


def _variables_of(name: str) -> Iterator[str]:
    """The variables that can set a setting: its own, and those of the tables around it."""
    path = name.upper().split(".")
    for length in range(1, len(path) + 1):
        yield ENVIRONMENT_PREFIX + "__".join(path[:length])


def dump(settings: Settings) -> str:
    """Settings as JSON, secrets masked: passwords, tokens, and what stands in addresses."""
    return json.dumps(
        masked_settings(msgspec.to_builtins(settings), settings.encryption.masked),
        indent=2,
        ensure_ascii=False,
    )


def _read_file(path: str | Path | None) -> dict[str, Any]:
    if path is None:
        if not Path(FILE).is_file():
            return {}
        path = FILE
    try:
        return tomllib.loads(Path(path).read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; give --config a file that exists") from None
    except (ValueError, RecursionError, OSError) as error:  # numbers of 5000 digits, deep nesting
        raise ConfigError(f"{path}: cannot be read as TOML: {error}") from error


def _from_environment(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, text in sorted(env.items()):
        if name.startswith(ENVIRONMENT_PREFIX) and name not in NO_SETTINGS:
            yield name, text


def _spelled(tree: Any, path: list[str]) -> list[str]:
    """``path`` with keys written as the file writes them: variables know no small letters."""
    spelled = []
    for key in path:
        below = tree if isinstance(tree, Mapping) else {}
        spelled.append(next((name for name in below if name.lower() == key), key))
        tree = below.get(spelled[-1])
    return spelled


def _value(text: str, path: list[str]) -> Any:
    """A variable's value: as it stands where text is expected, else as TOML reads it."""
    if explain.takes_text(path):
        return text
    try:
        # a text without quotes, such as a URL, is no TOML: it is taken as it stands
        parsed = tomllib.loads(f"x = {text}")
    except (ValueError, RecursionError):
        return text
    return parsed["x"] if len(parsed) == 1 else text


def _put(tree: dict[str, Any], path: list[str], value: Any) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"{'.'.join(path)}: {key!r} is a value, not a table")
    tree[path[-1]] = value
