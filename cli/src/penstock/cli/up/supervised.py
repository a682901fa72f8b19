"""One child of `penstock up`: started, started again when it dies, ended in order."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from penstock.runtime.children import Child, ChildFailed

FIRST_BACKOFF_SECONDS = 0.25
LONGEST_BACKOFF_SECONDS = 15.0
STEADY_SECONDS = 20.0
"""A child that lived this long has recovered: its next failure counts as the first."""


def backoff_seconds(failures: int) -> float:
    """How long to wait after so many failures in a row."""
    return min(FIRST_BACKOFF_SECONDS * 2.0 ** (failures - 1), LONGEST_BACKOFF_SECONDS)


class Supervised:
    """Keeps one process running.

    Args:
        begin: starts it; may raise ChildFailed.
        tell: hears a sentence about each failure.
    """

    def __init__(
        self, name: str, begin: Callable[[], Child], tell: Callable[[str], None], log: Path | None
    ) -> None:
        self.name = name
        self.child: Child | None = None
        self.starts = 0
        self._begin, self._tell, self._log = begin, tell, log
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
        """Until :meth:`end`: starts it, waits for its end, backs off, starts it again."""
        failures = 0
        while not self._ending.is_set():
            began = time.monotonic()
            problem = await self._run_once()
            if self._ending.is_set():
                return
            failures = 1 if time.monotonic() - began > STEADY_SECONDS else failures + 1
            wait = backoff_seconds(failures)
            where = f"; see {self._log}" if self._log else ""
            self._tell(f"{self.name} {problem}{where}; starting it again in {wait:g} s")
            await self._pause(wait)

    async def _run_once(self) -> str:
        try:
            self.child = child = self._begin()
        except ChildFailed as error:
            return str(error).splitlines()[0]
        self.starts += 1
        if self._last_signal is not None:
            child.signal(self._last_signal)
        code = await child.ended()
        child.end(0.0)  # has ended: this only closes what belonged to it
        self.child = None
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ending.wait()

    async def end(self, grace_seconds: float, hurry: asyncio.Event) -> None:
        """Ends it for good: TERM, then KILL after ``grace_seconds`` or as soon as ``hurry``."""
        self._ending.set()
        if (child := self.child) is None:
            return
        child.signal(signal.SIGTERM)
        child.signal(signal.SIGCONT)
        over = asyncio.ensure_future(child.ended())
        hurried = asyncio.ensure_future(hurry.wait())
        await asyncio.wait(
            {over, hurried}, timeout=grace_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        hurried.cancel()
        if not over.done():
            late = "" if hurry.is_set() else f" did not end within {grace_seconds:g} s and"
            self._tell(f"{self.name}{late} is killed")
            child.signal(signal.SIGKILL)
        await over
