"""What in a value has no encoding, and where it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

_encode = msgspec.msgpack.Encoder().encode
_DEEPEST = 20


def place_of(function: Callable[..., Any]) -> str:
    """``jobs.py:12``, where a function is defined; empty where that is not known."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


def unencodable(value: Any, *, is_secret: bool = False) -> str:
    """What cannot be stored: ``a Cursor at ['rows'][0], which …``.

    Args:
        value: of which encoding has failed.
        is_secret: nothing of its contents is named.
    """
    path, error = "", _error(value)
    for _ in range(0 if is_secret else _DEEPEST):
        inner = next(((key, part) for key, part in _parts(value) if _error(part)), None)
        if inner is None:
            break
        path, value = f"{path}[{inner[0]!r}]", inner[1]
        error = _error(value)
    where = f" at {path}" if path else ""
    reason = "" if is_secret else f" ({error})"
    return (
        f"a {type(value).__qualname__}{where}, which cannot be stored{reason}; return plain "
        "values, dataclasses or msgspec.Structs"
    )


def _parts(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list | tuple):
        yield from enumerate(value)


def _error(value: Any) -> str:
    """Why a value has no encoding; empty where it has one."""
    try:
        _encode(value)
    except Exception as error:  # also what an author's own types raise
        return str(error) or type(error).__name__
    return ""
