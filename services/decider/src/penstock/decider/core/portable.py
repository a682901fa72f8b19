"""Values that strategies and policies remember, as a new leader or a replay reads them again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(dict[str, Any]).decode


class TooLarge(ValueError):
    """More to remember than a decision can carry."""


def portable(memory: Mapping[str, Any], most_bytes: int) -> dict[str, Any]:
    """``memory`` encoded to JSON and decoded: tuples are lists, what is no number is None.

    Raises:
        TooLarge: it is encoded as more than ``most_bytes``.
        TypeError: a value has a type that JSON does not know.
        ValueError: a value cannot be encoded.
    """
    if not memory:
        return {}
    raw = _encode(memory)
    if len(raw) > most_bytes:
        raise TooLarge(f"found {len(raw)} bytes to remember, expected at most {most_bytes}")
    return _decode(raw)
