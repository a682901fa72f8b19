"""What earlier judgements of a workflow worked out, for as long as it holds. Pure.

Values of a workflow never change. So a condition is evaluated again, and a join made again, only
when other values take the place of those before; values are compared by identity for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.jobs.workflows.declared import bounds
from penstock.jobs.workflows.declared.values import ConditionError, in_memory

MAX_VALUE_BYTES = 2_000_000
"""Of the result of a join, encoded: a few large results of jobs."""
MAX_JOINS_DEEP = 100
_MOST_SIZES = 50_000
"""Kept at most; others are measured again."""


class _Size(NamedTuple):
    """Of a value.

    Attributes:
        encoded: bytes.
        in_memory: bytes, about; not of what joins nest.
        joins: how many results of joins are nested in each other.
    """

    encoded: int
    in_memory: int
    joins: int


class _Judged(NamedTuple):
    values: Sequence[Any]
    holds: bool
    error: str


class _Joined(NamedTuple):
    value: Mapping[str, Any]
    size: _Size


class Remembered:
    """Of one workflow that was started."""

    def __init__(self) -> None:
        self._judged: dict[int, _Judged] = {}
        self._joined: dict[int, _Joined] = {}
        self._joins: dict[int, _Joined] = {}
        self._sizes: dict[int, tuple[Any, _Size]] = {}

    def holds(self, position: int, values: Sequence[Any], judge: Callable[[], bool]) -> bool:
        """Whether the condition of a step holds.

        Args:
            position: of the step.
            values: all that its condition looks up.
            judge: evaluates it with these values.

        Raises:
            ConditionError: as ``judge`` does.
        """
        judged = self._judged.get(position)
        if judged is None or not _same(judged.values, values):
            try:
                judged = _Judged(values, judge(), "")
            except ConditionError as error:
                judged = _Judged(values, False, str(error))
            self._judged[position] = judged
        if judged.error:
            raise ConditionError(judged.error)
        return judged.holds

    def joined(self, position: int, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result of a join: the same object for the same values.

        Its size follows from those of its values, which are never encoded twice: joins that take
        each other would double it with each of them.

        Args:
            position: of the step.
            values: by name.

        Raises:
            ConditionError: it is too large, or nested too deeply.
        """
        earlier = self._joined.get(position)
        if earlier is not None:
            is_same = earlier.value.keys() == values.keys()
            if is_same and _same(list(earlier.value.values()), list(values.values())):
                return earlier.value
            del self._joins[id(earlier.value)]
        self._joined.pop(position, None)
        sizes = [self._size(value) for value in values.values()]
        names = sum(len(name.encode("utf-8", "replace")) + 5 for name in values)
        encoded = 5 + names + sum(size.encoded for size in sizes)
        joins = 1 + max((size.joins for size in sizes), default=0)
        if encoded > MAX_VALUE_BYTES:
            raise ConditionError(
                f"what it joins has {encoded:,} bytes, expected at most {MAX_VALUE_BYTES:,}"
            )
        if joins > MAX_JOINS_DEEP:
            raise ConditionError(
                f"it joins results of joins, {joins} deep; expected at most {MAX_JOINS_DEEP}"
            )
        joined = _Joined(values, _Size(encoded, 0, joins))
        self._joined[position] = self._joins[id(values)] = joined
        return values

    def refusal(self, results: Iterable[Any]) -> str:
        """Why a workflow whose steps look into these results is not judged; empty if it is."""
        total = sum(self._size(result).in_memory for result in results)
        most = bounds.MAX_ALL_RESULTS_BYTES
        return (
            f"the results that its conditions and joins look into take {total:,} bytes in memory, "
            f"expected at most {most:,}"
            if total > most
            else ""
        )

    def _size(self, value: Any) -> _Size:
        """Raises ConditionError: it cannot be encoded."""
        if (joined := self._joins.get(id(value))) is not None:
            return joined.size
        if (measured := self._sizes.get(id(value))) is not None:
            return measured[1]
        try:
            encoded = len(msgspec.msgpack.encode(value))
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise ConditionError(f"a value cannot be encoded: {error}") from None
        size = _Size(encoded, in_memory(value, encoded), 0)
        if len(self._sizes) >= _MOST_SIZES:
            self._sizes.clear()
        self._sizes[id(value)] = value, size  # kept, so that no other value takes its id
        return size


def _same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(some) == len(others) and all(
        one is other for one, other in zip(some, others, strict=True)
    )
