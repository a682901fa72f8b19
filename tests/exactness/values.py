"""Values of any msgspec type, drawn from the type itself: a new field is covered by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

Values = st.SearchStrategy[Any]
Special = Mapping[str, Callable[[], Values]]
"""By the name of a field: what a type cannot say, such as which strategies there are."""

_USUAL_SPAN = 200
"""Most numbers lie so near to their least value: what pools have, not what types permit."""
_LARGEST = 10_000
_WORDS = ("", "x", "UTC", "Europe/Berlin", "06:30", "22:00", "up", "down", "tick", "backlog")
"""Texts that mean something somewhere; a struct that refuses one of them is not given it."""


def of(kind: inspect.Type, special: Special | None = None) -> Values:
    """Plain values (as JSON and TOML have them) that ``kind`` accepts."""
    match kind:
        case inspect.UnionType():
            return st.one_of([of(member, special) for member in kind.types])
        case inspect.FloatType():
            return _floats(kind)
        case inspect.IntType():
            low = _low(kind)
            return st.integers(math.ceil(low), math.floor(_high(kind, low)))
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.LiteralType():
            return st.sampled_from(kind.values)
        case inspect.StrType():
            return st.sampled_from(_WORDS)
        case inspect.DateType():
            return st.dates(date(2023, 11, 10), date(2023, 12, 1))
        case inspect.VarTupleType() | inspect.ListType():
            return st.lists(of(kind.item_type, special), max_size=4)
        case inspect.TupleType():
            return st.tuples(*(of(item, special) for item in kind.item_types)).map(list)
        case inspect.DictType():
            return st.dictionaries(
                st.sampled_from(["a", "b", "c"]), of(kind.value_type, special), max_size=3
            )
        case inspect.StructType():
            return table(kind.cls, special or {})
    raise NotImplementedError(f"no values of {kind} are known; teach tests/exactness/values.py")


def table(
    struct: type, special: Special | None = None, without: frozenset[str] = frozenset()
) -> Values:
    """Tables that a struct accepts: required fields and some of the others.

    Args:
        without: fields that are left out.
    """
    special = special or {}
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    fields = [field for field in info.fields if field.name not in without]
    required = tuple(field.name for field in fields if field.required)
    whole = not (without or required)
    values = {field.name: _field(struct, field, special, whole) for field in fields}
    tables = st.fixed_dictionaries(
        {name: values[name] for name in required},
        optional={name: values[name] for name in values if name not in required},
    )
    return tables if without else tables.filter(lambda found: _fits(found, struct))


def _field(struct: type, field: inspect.Field, special: Special, whole: bool) -> Values:
    """Args: whole: the struct can be read with this field alone."""
    if field.name in special:
        return special[field.name]()
    if isinstance(field.type, inspect.StrType) and whole:
        accepted = [word for word in _WORDS if _fits({field.name: word}, struct)]
        return st.sampled_from(accepted or [field.default])
    return of(field.type, special)


def _fits(found: dict[str, Any], struct: type) -> bool:
    try:
        msgspec.convert(found, struct)
    except msgspec.ValidationError:
        return False
    return True


def _floats(kind: inspect.FloatType) -> Values:
    """Broken numbers and, as often, whole ones as integers: what people write for a float."""
    low = _low(kind)
    high = _high(kind, low)
    floats = st.floats(
        low,
        high,
        exclude_min=kind.gt is not None and kind.gt == low,
        exclude_max=kind.lt is not None and kind.lt == high,
        allow_subnormal=False,
    ).map(lambda number: number + 0.0)  # no sign of zero
    least = math.floor(low) + 1 if kind.gt is not None else math.ceil(low)
    most = math.ceil(high) - 1 if kind.lt is not None else math.floor(high)
    return st.one_of(floats, st.integers(least, most)) if least <= most else floats


def _low(kind: inspect.FloatType | inspect.IntType) -> float:
    """No number of a configuration or measurement is below zero unless its type says so."""
    return next((bound for bound in (kind.ge, kind.gt) if bound is not None), 0)


def _high(kind: inspect.FloatType | inspect.IntType, low: float) -> float:
    bounds = [bound for bound in (kind.le, kind.lt) if bound is not None]
    usual = low * 4 if low > _LARGEST else low + _USUAL_SPAN
    return min([*bounds, usual])
