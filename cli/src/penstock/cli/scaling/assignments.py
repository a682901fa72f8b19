"""Settings that are given on the command line, as ``--set NAME=VALUE``."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from typing import Any

from penstock.cli.errors import Refused


def assignments(texts: Iterable[str]) -> dict[str, Any]:
    """The values by the names of the settings.

    Args:
        texts: each ``NAME=VALUE``.

    Raises:
        Refused: a text has no ``=``.
    """
    values = {}
    for text in texts:
        name, mark, value = text.partition("=")
        if not mark:
            raise Refused(f"--set: found {text!r}, expected NAME=VALUE")
        values[name.strip()] = toml_value(value.strip())
    return values


def toml_value(text: str) -> Any:
    """The text as TOML reads it; a text that is no TOML stands for itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
