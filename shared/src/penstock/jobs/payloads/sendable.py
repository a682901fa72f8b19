"""Types that a call can carry: everything in it is MessagePack, and nothing of it is pickled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import msgspec.inspect

_TYPES = (
    "None, bool, int, float, str, bytes, dates, times and timedelta, UUID, Decimal, Enum, "
    "list, tuple, set and dict of these, dataclasses, NamedTuple, TypedDict and msgspec.Struct"
)
_PLAIN: tuple[Any, ...] = (None, True, 0, 0.0, "", b"", [], {})


def unsendable(annotation: Any) -> str:
    """Name of a type in the annotation of which no value can be sent; empty where all can.

    Fields with a default are passed over, since they need not be sent.
    """
    custom_types = _custom(msgspec.inspect.type_info(annotation), set())
    return next((kind.__qualname__ for kind in custom_types if not _takes_plain_values(kind)), "")


def instead(name: str) -> str:
    """What to declare instead of a type of this name."""
    if name.endswith("Path"):
        return "declare str, and make the path in the function"
    return f"use {_TYPES}"


def _custom(info: Any, visited: set[int]) -> Iterator[type]:
    if id(info) in visited:  # a type that contains itself
        return
    visited.add(id(info))
    if isinstance(info, msgspec.inspect.CustomType):
        yield info.cls
        return
    for name in info.__struct_fields__:
        value = getattr(info, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, msgspec.inspect.Field):
                if part.required:
                    yield from _custom(part.type, visited)
            elif isinstance(part, msgspec.inspect.Type):
                yield from _custom(part, visited)


def _takes_plain_values(kind: type) -> bool:
    """Whether a decoded value may be one of it: of `object`, or of a class such as `Sized`."""
    try:
        return any(isinstance(value, kind) for value in _PLAIN)
    except TypeError:  # a protocol that is not checked at run time
        return False
