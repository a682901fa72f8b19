"""Reads of the rows, in turn for each caller: one that asks without end waits for itself alone."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

MOST_OF_CALLER = 16
"""Reads of one caller that run or wait."""
CALLER: ContextVar[str] = ContextVar("caller", default="")
"""Whom the present request is answered for; empty for the console itself, which has no bound."""
_THREADS = 2


class TooManyReads(Exception):
    """A caller has as many reads under way as one may have."""


class _Read:
    """A read that waits for its turn."""

    def __init__(self, work: Callable[[], Any], answer: asyncio.Future[Any]) -> None:
        self.work, self.answer = work, answer


class FairReads:
    """Runs reads in a few threads; each caller that waits has its turn after the one before it.

    Args:
        threads: reads that run at the same time.
    """

    def __init__(self, threads: int = _THREADS) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="console-reader")
        self._waiting: dict[str, deque[_Read]] = {}
        self._of_caller: Counter[str] = Counter()
        self._running = 0

    async def run(self, work: Callable[[], T]) -> T:
        """The result of a read, in a thread.

        Raises:
            TooManyReads: the caller of the present request has too many under way.
        """
        caller = CALLER.get()
        if caller and self._of_caller[caller] >= MOST_OF_CALLER:
            raise TooManyReads(
                f"{MOST_OF_CALLER} of your requests are being answered; wait for one of them"
            )
        read = _Read(work, asyncio.get_running_loop().create_future())
        self._of_caller[caller] += 1
        self._waiting.setdefault(caller, deque()).append(read)
        self._start()
        try:
            result: T = await read.answer
            return result
        finally:
            self._of_caller[caller] -= 1
            if not self._of_caller[caller]:
                del self._of_caller[caller]

    def close(self) -> None:
        """Ends the threads, after what they do now."""
        self._pool.shutdown(wait=True)

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        while self._running < self._threads and self._waiting:
            caller = next(iter(self._waiting))
            reads = self._waiting.pop(caller)
            read = reads.popleft()
            if reads:
                self._waiting[caller] = reads  # behind those of the others
            if read.answer.done():  # its client is gone
                continue
            self._running += 1
            running = loop.run_in_executor(self._pool, read.work)
            running.add_done_callback(partial(self._ended, read))

    def _ended(self, read: _Read, running: asyncio.Future[Any]) -> None:
        self._running -= 1
        if not read.answer.done():
            if running.cancelled():
                read.answer.cancel()
            elif (error := running.exception()) is not None:
                read.answer.set_exception(error)
            else:
                read.answer.set_result(running.result())
        elif not running.cancelled():
            running.exception()  # no caller waits for it any more
        self._start()


class _Answer(NamedTuple):
    version: Hashable
    began_at: float
    value: Any


class Remembered:
    """Answers that hold for one version of the rows, computed one after the other for all who ask.

    Args:
        version: of the rows as they are now.
    """

    def __init__(self, version: Callable[[], Hashable]) -> None:
        self._version = version
        self._answers: dict[Hashable, _Answer] = {}
        self._computing = asyncio.Lock()

    async def answer(self, question: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """The answer to a question, as of its asking or later.

        Args:
            question: equal ones have equal answers; there are a few.
            read: finds it.
        """
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        if (kept := self._kept(question, asked_at)) is None:
            async with self._computing:
                if (kept := self._kept(question, asked_at)) is None:
                    version, began_at = self._version(), loop.time()
                    kept = _Answer(version, began_at, await read())
                    self._answers[question] = kept
        value: T = kept.value
        return value

    def _kept(self, question: Hashable, asked_at: float) -> _Answer | None:
        kept = self._answers.get(question)
        if kept is None or (kept.version != self._version() and kept.began_at < asked_at):
            return None
        return kept
