"""Which share of the orchestrator's memory and time a job of some queue takes from. Pure.

A key that may dispatch can invent jobs, and names of queues. So each queue that the settings name
has a share of its own; all other queues have one together, and so have jobs whose queue is to be
read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import chain, islice, zip_longest
from typing import Protocol, TypeVar

_LEAST_PART = 8


class HasQueue(Protocol):
    queue: str


T = TypeVar("T")
Q = TypeVar("Q", bound=HasQueue)


class Shares:
    """The shares of the queues.

    Args:
        named: queues that the settings name.
    """

    def __init__(self, named: Collection[str] = ()) -> None:
        self._named = frozenset(named)

    def of(self, queue: str) -> str:
        """Name of the share that a queue takes from; empty where its name is still to be read."""
        return queue if queue in self._named or not queue else "*"

    def most(self, limit: int) -> int:
        """How many of ``limit`` entries one share may have."""
        return max(limit // (len(self._named) + 2), limit // _LEAST_PART, 1)

    def in_turn(self, entries: Iterable[Q]) -> Iterator[Q]:
        """All of them: one of each share, then the next of each; within a share, so by queue."""
        shares: dict[str, dict[str, list[Q]]] = {}
        for entry in entries:
            queues = shares.setdefault(self.of(entry.queue), {})
            queues.setdefault(entry.queue, []).append(entry)
        return _in_turn([_in_turn(queues.values()) for queues in shares.values()])

    def first(self, entries: Iterable[Q], most: int) -> list[Q]:
        """Up to ``most`` of :meth:`in_turn`."""
        return list(islice(self.in_turn(entries), most))


def _in_turn(rows: Iterable[Iterable[T]]) -> Iterator[T]:
    nothing = object()
    turns = zip_longest(*rows, fillvalue=nothing)
    return (one for one in chain.from_iterable(turns) if one is not nothing)  # type: ignore[misc]
