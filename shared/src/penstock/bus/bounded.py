"""Many requests to the broker, of which a bounded number is under way at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def gather(ask: Callable[[T], Awaitable[R]], items: Sequence[T], at_once: int) -> list[R]:
    """The results of ``ask`` for each item, in their order.

    Args:
        at_once: how many are asked together; the next group begins when all of these have answered.

    Raises:
        Exception: the first that ``ask`` raised.
    """
    answers: list[R] = []
    for start in range(0, len(items), at_once):
        answers += await asyncio.gather(*map(ask, items[start : start + at_once]))
    return answers
