"""What rules would have done, computed once for all who ask, and two at once at most."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable

from penstock.console.computing.commands import TooManyComputations
from penstock.console.core.alerts.backtest import Backtest

MOST_AT_ONCE = 2
_MOST_KEPT = 50


class Backtests:
    """Answers that are kept, and those on their way.

    One that began is brought to its end, whether its caller waits or not: else callers who leave
    could have any number of them run.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, Backtest] = OrderedDict()
        self._running: dict[Hashable, asyncio.Task[Backtest]] = {}

    async def answer(
        self, question: Hashable, compute: Callable[[], Awaitable[Backtest]]
    ) -> Backtest:
        """The answer to a question.

        Args:
            question: equal ones have equal answers.
            compute: finds it.

        Raises:
            TooManyComputations: as many run as may.
        """
        if (kept := self._kept.get(question)) is not None:
            self._kept.move_to_end(question)
            return kept
        task = self._running.get(question)
        if task is None:
            if len(self._running) >= MOST_AT_ONCE:
                raise TooManyComputations(
                    f"{MOST_AT_ONCE} rules are being tested over the past; ask again in a moment"
                )
            task = asyncio.create_task(self._compute(question, compute))
            task.add_done_callback(_look_at)
            self._running[question] = task
        return await asyncio.shield(task)

    async def _compute(
        self, question: Hashable, compute: Callable[[], Awaitable[Backtest]]
    ) -> Backtest:
        try:
            answer = await compute()
        finally:
            del self._running[question]
        self._kept[question] = answer
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return answer


def _look_at(task: asyncio.Task[Backtest]) -> None:
    """An error is that of the callers, of whom none may be left."""
    if not task.cancelled():
        task.exception()
