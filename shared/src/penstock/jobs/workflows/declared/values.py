"""Values that steps refer to, and conditions over them. Pure; nothing is executed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import ge, gt, le, lt
from typing import Any

from msgspec import UNSET

from penstock.events.condition import Condition, Operand, Path, Reference

Lookup = Callable[[Path], Any]
"""The value at a path; ``UNSET`` where there is none."""

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {"lt": lt, "le": le, "gt": gt, "ge": ge}


class ConditionError(ValueError):
    """A condition compares values that have no order, or looks into what is no list."""


def inside(value: Any, path: Sequence[str | int]) -> Any:
    """The part of a value; ``UNSET`` where there is none.

    Args:
        value: plain data.
        path: keys of objects and indices of lists.
    """
    for key in path:
        if isinstance(value, list):
            exists = type(key) is int and 0 <= key < len(value)
        else:
            exists = isinstance(value, dict) and key in value
        if not exists:
            return UNSET
        value = value[key]
    return value


def holds(condition: Condition, lookup: Lookup) -> bool:
    """Whether a condition holds. A value that does not exist equals none, and has no order.

    Args:
        condition: of bounded size.
        lookup: where its values come from.

    Raises:
        ConditionError: names what was compared, not the values.
    """
    if condition.all_of is not None:
        return all(holds(part, lookup) for part in condition.all_of)
    if condition.any_of is not None:
        return any(holds(part, lookup) for part in condition.any_of)
    if condition.negated is not None:
        return not holds(condition.negated, lookup)
    if condition.exists is not None:
        return lookup(condition.exists) not in (UNSET, None)
    assert condition.comparison is not None
    left, right = (_value(operand, lookup) for operand in condition.comparison)
    match condition.operator:
        case "eq":
            return _equal(left, right)
        case "ne":
            return not _equal(left, right)
        case "within":
            return _is_item(left, right)
    return _ordered(condition.operator, left, right)


def _value(operand: Operand, lookup: Lookup) -> Any:
    return lookup(operand.ref) if isinstance(operand, Reference) else operand


def _equal(left: Any, right: Any) -> bool:
    if UNSET in (left, right) or isinstance(left, bool) is not isinstance(right, bool):
        return False
    left, right = (list(side) if isinstance(side, tuple) else side for side in (left, right))
    return bool(left == right)


def _is_item(item: Any, items: Any) -> bool:
    if UNSET in (item, items):
        return False
    if not isinstance(items, list | tuple):
        raise ConditionError(f"'in' looks into a list, found {_kind(items)}")
    return any(_equal(item, other) for other in items)


def _ordered(operator: str, left: Any, right: Any) -> bool:
    if UNSET in (left, right) or None in (left, right):
        return False
    if not (_is_number(left) and _is_number(right)) and not (
        isinstance(left, str) and isinstance(right, str)
    ):
        raise ConditionError(
            f"two numbers or two texts have an order, found {_kind(left)} and {_kind(right)}"
        )
    return _ORDERS[operator](left, right)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    names = {bool: "true or false", str: "text", dict: "an object", list: "a list"}
    if value is None:
        return "null"
    return "a number" if _is_number(value) else names.get(type(value), type(value).__name__)
