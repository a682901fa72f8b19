"""Values that steps refer to, and conditions over them. Pure; nothing is executed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from operator import ge, gt, le, lt
from typing import Any

from msgspec import UNSET

from penstock.events.condition import Condition, Operand, Path, Reference
from penstock.jobs.workflows.declared.bounds import BYTES_OF_A_VALUE, MAX_RESULT_VALUES

Lookup = Callable[[Path], Any]
"""The value at a path; ``UNSET`` where there is none."""

MAX_COMPARED = 2_000
"""Values in the lists and objects that one condition compares, all of its parts together."""
_MAX_DEPTH = 50
_CHARACTERS_OF_ONE = 1_000
_FLAT = frozenset({int, float, bool, type(None)})
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {"lt": lt, "le": le, "gt": gt, "ge": ge}


class ConditionError(ValueError):
    """A condition compares values that have no order, or too many, or looks into no list."""


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
        ConditionError: names what was compared, not the values; or lists and objects are compared
            that hold too many values.
    """
    return _Evaluation(lookup).holds(condition)


class _Evaluation:
    """Of one condition: what it compares is counted."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup, self._left = lookup, MAX_COMPARED

    def holds(self, condition: Condition) -> bool:
        if condition.all_of is not None:
            return all(map(self.holds, condition.all_of))
        if condition.any_of is not None:
            return any(map(self.holds, condition.any_of))
        if condition.negated is not None:
            return not self.holds(condition.negated)
        if condition.exists is not None:
            value = self._lookup(condition.exists)
            return value is not UNSET and value is not None
        if condition.eq is not None:
            return self._equal(*map(self._value, condition.eq))
        if condition.ne is not None:
            return not self._equal(*map(self._value, condition.ne))
        if condition.within is not None:
            return self._is_item(*map(self._value, condition.within))
        assert condition.comparison is not None
        return _ordered(condition.operator, *map(self._value, condition.comparison))

    def _value(self, operand: Operand) -> Any:
        return self._lookup(operand.ref) if isinstance(operand, Reference) else operand

    def _equal(self, left: Any, right: Any) -> bool:
        # Comparing two values takes as long as the smaller of them.
        sizes = (size_of(side, self._left) for side in (left, right))
        self._count(min(sizes))
        return _equal(left, right)

    def _is_item(self, item: Any, items: Any) -> bool:
        if UNSET in (item, items):
            return False
        if not isinstance(items, list | tuple):
            raise ConditionError(f"'in' looks into a list, found {_kind(items)}")
        self._count(size_of(items, self._left))
        item = list(item) if isinstance(item, tuple) else item
        if item not in items:  # in C: most of the time it is in none of them
            return False
        is_bool = isinstance(item, bool)
        return any(isinstance(other, bool) is is_bool and other == item for other in items)

    def _count(self, compared: int) -> None:
        """Raises ConditionError."""
        self._left -= compared
        if self._left < 0:
            raise ConditionError(
                f"the lists and objects that it compares hold more than {MAX_COMPARED:,} values, "
                f"or are nested more than {_MAX_DEPTH} deep"
            )


def size_of(value: Any, most: int, max_depth: int = _MAX_DEPTH) -> int:
    """How many values a list or object holds, in all; text counts once for 1,000 characters.

    Args:
        value: plain data.
        most: beyond this no more are counted: it is then ``most`` + 1.
        max_depth: likewise of lists and objects that are nested deeper.
    """
    if not isinstance(value, list | tuple | dict):
        return len(value) // _CHARACTERS_OF_ONE if isinstance(value, str | bytes) else 0
    size, level, depth = 0, [value], 0
    while level:
        depth += 1
        size += sum(map(len, level))
        if size > most or depth > max_depth:
            return most + 1
        parts = [list(one.values()) + list(one) if isinstance(one, dict) else one for one in level]
        level = []
        for part in chain.from_iterable(one for one in parts if not _is_flat(one)):
            if isinstance(part, list | tuple | dict):
                level.append(part)
            elif isinstance(part, str | bytes):
                size += len(part) // _CHARACTERS_OF_ONE
    return min(size, most + 1)


def _is_flat(values: Sequence[Any]) -> bool:
    """Whether these are numbers, true, false and null: the usual long list, looked at in C."""
    return _FLAT.issuperset(map(type, values))


def in_memory(value: Any, encoded_bytes: int) -> int:
    """How many bytes a result takes in memory, about.

    Args:
        value: plain data.
        encoded_bytes: of its encoded form.
    """
    return encoded_bytes + BYTES_OF_A_VALUE * size_of(value, MAX_RESULT_VALUES, MAX_RESULT_VALUES)


def _equal(left: Any, right: Any) -> bool:
    if UNSET in (left, right) or isinstance(left, bool) is not isinstance(right, bool):
        return False
    left, right = (list(side) if isinstance(side, tuple) else side for side in (left, right))
    return bool(left == right)


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
