"""Building blocks of settings: bounds of values, and a table of `penstock.toml`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, inspect

Positive = Annotated[float, Meta(gt=0, le=1e9)]
NonNegative = Annotated[float, Meta(ge=0, le=1e9)]
Period = Annotated[float, Meta(gt=0, le=36_500)]
"""Days or hours; the broker counts nanoseconds in 64 bits."""
BudgetWindow = Annotated[float, Meta(ge=600, le=2_678_400)]
"""Ten minutes to a month."""
Count = Annotated[int, Meta(ge=0, le=100_000)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
Share = Annotated[float, Meta(gt=0, lt=1)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
"""A name that may be part of a subject."""


ALL: tuple[str, ...] = ("*",)
"""Every setting of a section."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of `penstock.toml`.

    Numbers have their declared types wherever a value comes from (a file, a variable, a flag,
    Python): a recorded decision is recomputed from settings that went through JSON, where 60 and
    60.0 differ.
    A subclass with a ``__post_init__`` of its own calls this one first.
    """

    of_process: ClassVar[tuple[str, ...]] = ()
    """Settings that an executor takes over at its start only; the other services take over all."""
    of_machine: ClassVar[tuple[str, ...]] = ()
    """Settings that may differ between the machines of an installation."""

    def __post_init__(self) -> None:
        """Raises ValueError for a number that JSON cannot carry, or that compares in odd ways."""
        for name, kind in _kinds(type(self)).items():
            value = getattr(self, name)
            typed = _typed(value, kind, name)
            if typed is not value:
                msgspec.structs.force_setattr(self, name, typed)


@cache
def _kinds(section: type[Section]) -> Mapping[str, inspect.Type]:
    """The declared types of the fields that may hold numbers, themselves or further below."""
    kinds = {field.name: inspect.type_info(field.type) for field in msgspec.structs.fields(section)}
    return {name: kind for name, kind in kinds.items() if _may_hold_floats(kind)}


def _may_hold_floats(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.UnionType):
        return any(map(_may_hold_floats, kind.types))
    if isinstance(kind, inspect.DictType):
        return _may_hold_floats(kind.value_type)
    if isinstance(kind, inspect.VarTupleType | inspect.ListType):
        return _may_hold_floats(kind.item_type)
    return isinstance(kind, inspect.FloatType | inspect.AnyType)


def _typed(value: Any, kind: inspect.Type | None, name: str) -> Any:
    """``value`` with floats where its type asks for them; the same object where nothing changes."""
    if type(value) is int:
        return float(value) if _wants_float(kind) else value
    if type(value) is float:
        _check_float(value, name)
    elif isinstance(value, dict):
        below = _of_kind(kind, inspect.DictType)
        typed = {
            key: _typed(item, below.value_type if below else None, f"{name}.{key}")
            for key, item in value.items()
        }
        if any(typed[key] is not item for key, item in value.items()):
            return typed
    elif isinstance(value, list | tuple):
        items = _of_kind(kind, inspect.VarTupleType) or _of_kind(kind, inspect.ListType)
        item_kind = items.item_type if items else None
        typed_items = [_typed(item, item_kind, f"{name}[{i}]") for i, item in enumerate(value)]
        if any(typed is not item for typed, item in zip(typed_items, value, strict=True)):
            return type(value)(typed_items)
    return value


def _check_float(value: float, name: str) -> None:
    if not math.isfinite(value) or (value == 0 and math.copysign(1.0, value) < 0):
        raise ValueError(f"{name}: found {value}, expected a finite number (and 0 without a sign)")


def _wants_float(kind: inspect.Type | None) -> bool:
    if isinstance(kind, inspect.UnionType):
        return any(map(_wants_float, kind.types)) and not _of_kind(kind, inspect.IntType)
    return isinstance(kind, inspect.FloatType)


def _of_kind(kind: inspect.Type | None, wanted: type[Any]) -> Any:
    """``kind`` itself, or the member of a union, that is of the wanted type; else None."""
    if isinstance(kind, inspect.UnionType):
        return next((member for member in kind.types if isinstance(member, wanted)), None)
    return kind if isinstance(kind, wanted) else None
