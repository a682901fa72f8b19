"""A call inside context managers, plain and asynchronous ones mixed, the first outermost."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack
from typing import Any, Final

from penstock.jobs.middleware import Around

SUPPRESSED: Final = object()
"""Returned for a job whose error a middleware suppressed. It has no result, whatever its type."""


def call(arounds: Sequence[Around], function: Callable[[], Any]) -> Any:
    """The function's result, inside plain context managers."""
    with ExitStack() as stack:
        for each in arounds:
            assert isinstance(each, AbstractContextManager)
            stack.enter_context(each)
        return function()
    return SUPPRESSED


async def call_async(arounds: Sequence[Around], function: Callable[[], Any]) -> Any:
    """The function's result, awaited where it is a coroutine."""
    async with AsyncExitStack() as stack:
        for each in arounds:
            if isinstance(each, AbstractContextManager):
                stack.enter_context(each)
            else:
                await stack.enter_async_context(each)
        result = function()
        return await result if inspect.isawaitable(result) else result
    return SUPPRESSED
