"""How many values a label may take."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar, cast

_MOST_CHARACTERS = 200
K = TypeVar("K", bound=Hashable)


class BoundedLabels(Generic[K]):
    """Gives each of the first values itself, and further ones ``other``; iterates over the former.

    Long text is cut: any key that may store events chooses names.

    Args:
        most: how many.
        other: stands for all further ones.
        first: those that are there from the beginning.
    """

    def __init__(self, most: int, other: K, *first: K) -> None:
        self._most, self._other = most, other
        self._values = {value: value for value in first}

    def __getitem__(self, value: K) -> K:
        value = cast("K", _cut(value))
        if value not in self._values and len(self._values) >= self._most:
            return self._other
        return self._values.setdefault(value, value)

    def __iter__(self) -> Iterator[K]:
        return iter(tuple(self._values))


def _cut(value: Hashable) -> Hashable:
    if isinstance(value, tuple):
        return tuple(map(_cut, value))
    return value[:_MOST_CHARACTERS] if isinstance(value, str) else value
