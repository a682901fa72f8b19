"""One child process that is kept running: started, started again when it dies, ended in order."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.runtime.children import Child, ChildFailed


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Pauses between the starts of a child.

    Attributes:
        first_seconds: after the first failure; doubled with each that follows.
        longest_seconds: at most.
        steady_seconds: a child that lived this long has recovered: its next failure counts as the
            first.
    """

    first_seconds: float = 0.25
    longest_seconds: float = 15.0
    steady_seconds: float = 20.0

    def pause_seconds(self, failures: int) -> float:
        """The pause after so many failures in a row."""
        return min(self.first_seconds * 2.0 ** (failures - 1), self.longest_seconds)


class Supervised:
    """Keeps one process running.

    Args:
        name: for messages.
        begin: starts the process; may raise ChildFailed.
        notify: called with a sentence about each failure.
        log: the file that such a sentence refers to.
        attend: what to do with a process while it lives; returns whether it had recovered. Without
            it the end of the process is waited for, and it had if it lived ``steady_seconds``.
    """

    def __init__(
        self,
        name: str,
        begin: Callable[[], Child],
        notify: Callable[[str], None],
        log: Path | None = None,
        *,
        attend: Callable[[Child], Awaitable[bool]] | None = None,
        backoff: Backoff = Backoff(),
    ) -> None:
        self.name = name
        self.child: Child | None = None
        self.starts = 0
        self._begin, self._notify, self._log = begin, notify, log
        self._attend, self._backoff = attend or self._until_ended, backoff
        self._failures = 0
        self._ending = asyncio.Event()
        self._last_signal: int | None = None

    @property
    def pid(self) -> int | None:
        return self.child.pid if self.child else None

    def signal(self, number: int) -> None:
        """Passes a signal on, now and to each process that is started later."""
        self._last_signal = number
        if self.child is not None:
            self.child.signal(number)

    async def keep(self) -> None:
        """Until :meth:`end`: starts it, waits for its end, backs off, starts it again.

        Cancelled, it leaves the process to itself.
        """
        while not self._ending.is_set():
            problem = await self._run_once()
            if self._ending.is_set():
                return
            self._failures += 1
            pause = self._backoff.pause_seconds(self._failures)
            where = f"; see {self._log}" if self._log else ""
            self._notify(f"{self.name} {problem}{where}; starting it again in {pause:g} s")
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._ending.wait()

    async def _run_once(self) -> str:
        """The life of one process; returns how it ended."""
        try:
            self.child = child = self._begin()
        except ChildFailed as error:
            return str(error).splitlines()[0]
        self.starts += 1
        # A paused service that was restarted must not take work again by itself.
        if self._last_signal is not None:
            child.signal(self._last_signal)
        if await self._attend(child):
            self._failures = 0
        code = await child.ended()
        child.end(0.0)  # has ended: this only closes what belonged to it
        self.child = None
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"

    async def _until_ended(self, child: Child) -> bool:
        began = time.monotonic()
        await child.ended()
        return time.monotonic() - began > self._backoff.steady_seconds

    def retire(self) -> None:
        """It is not started again when it ends; until then it goes on."""
        self._ending.set()

    async def end(self, grace_seconds: float, hurry: asyncio.Event | None = None) -> None:
        """Ends it for good: TERM, then KILL after ``grace_seconds`` or as soon as ``hurry``."""
        self._ending.set()
        if (child := self.child) is None:
            return
        child.signal(signal.SIGTERM)
        child.signal(signal.SIGCONT)  # a stopped process does not handle TERM
        ended = asyncio.ensure_future(child.ended())
        hurried = asyncio.ensure_future((hurry or asyncio.Event()).wait())
        await asyncio.wait(
            {ended, hurried}, timeout=grace_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        hurried.cancel()
        if not ended.done():
            is_hurried = hurry is not None and hurry.is_set()
            late = "" if is_hurried else f" did not end within {grace_seconds:g} s and"
            self._notify(f"{self.name}{late} is killed")
            child.signal(signal.SIGKILL)
        await ended
