"""Answers that several callers want: computed once, and kept while there is room."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from penstock.console.computing.commands import ComputationFailed

T = TypeVar("T")


class _Flight(Generic[T]):
    """A computation under way, who began it, and how many callers wait for it."""

    def __init__(self, task: asyncio.Task[T], by: str) -> None:
        self.task, self.by, self.waiting = task, by, 0


class SharedAnswers(Generic[T]):
    """Equal questions share one computation, which ends when no caller waits for it any more.

    Args:
        most: answers that are kept; the one that was not used for longest goes first.
        keeps: whether an answer stays true.
    """

    def __init__(self, most: int, keeps: Callable[[T], bool]) -> None:
        self._most, self._keeps = most, keeps
        self._kept: OrderedDict[Hashable, T] = OrderedDict()
        self._flights: dict[Hashable, _Flight[T]] = {}

    def kept(self, question: Hashable) -> T | None:
        """An answer that is there; None where it is to be computed."""
        if question in self._kept:
            self._kept.move_to_end(question)
        return self._kept.get(question)

    def is_computed(self, question: Hashable) -> bool:
        """Whether a new caller would wait for a computation that runs already."""
        return question in self._flights

    def is_computed_for(self, person: str) -> bool:
        """Whether a computation is under way that this person began."""
        return any(flight.by == person for flight in self._flights.values())

    async def answer(
        self, question: Hashable, compute: Callable[[], Awaitable[T]], by: str = ""
    ) -> T:
        """The answer to a question.

        Args:
            question: equal ones have equal answers.
            compute: finds it, where it is neither kept nor under way.
            by: the person who asks.

        Raises:
            ComputationFailed: the console ends.
        """
        if (kept := self.kept(question)) is not None:
            return kept
        flight = self._flights.get(question)
        if flight is None:
            task = asyncio.create_task(self._compute(question, compute))
            flight = self._flights[question] = _Flight(task, by)
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if flight.task.cancelled() and not (caller and caller.cancelling()):
                raise ComputationFailed("the console ends; ask again in a moment") from None
            raise
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                self._forget(question, flight.task)
                flight.task.cancel()

    async def end(self) -> None:
        """Ends all computations; their callers get ComputationFailed."""
        tasks = [flight.task for flight in self._flights.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _compute(self, question: Hashable, compute: Callable[[], Awaitable[T]]) -> T:
        try:
            answer = await compute()
        finally:
            self._forget(question, asyncio.current_task())
        if self._keeps(answer):
            self._kept[question] = answer
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return answer

    def _forget(self, question: Hashable, task: asyncio.Task[T] | None) -> None:
        """The next caller with this question begins anew, unless one has already."""
        flight = self._flights.get(question)
        if flight is not None and flight.task is task:
            del self._flights[question]
