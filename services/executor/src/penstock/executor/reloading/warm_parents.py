"""The warm parents of a host: the one that forks, and older ones whose workers still live."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from penstock.executor.warm_parent import WARM_SECONDS, WarmParent
from penstock.runtime.workers.assignment import Assignment

Spawn = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]
"""Runs a loop beside the others of the service."""

_PATIENCE_SECONDS = WARM_SECONDS + 10.0


class WarmParents:
    """Forks from one parent at a time.

    Args:
        make: makes a warm parent that is not started.
        modules: names of those with job code: a parent that cannot import one of them is not used.

    Attributes:
        current: the parent that forks.
    """

    def __init__(
        self, make: Callable[[], WarmParent], modules: Callable[[], Collection[str]]
    ) -> None:
        self._make, self._modules = make, modules
        self.current = make()
        self._running: set[WarmParent] = set()

    @property
    def pids(self) -> set[int]:
        """Process ids of all parents."""
        return {parent.pid for parent in self._running if parent.pid is not None}

    def start(self, spawn: Spawn) -> None:
        """Starts the first parent."""
        self._start(self.current, spawn)

    def fork(self, assignment: Assignment) -> None:
        """Orders a worker; see :meth:`WarmParent.fork`."""
        self.current.fork(assignment)

    async def failure(self) -> str:
        """Why the current parent cannot fork workers with job code, once that is known."""
        return await self._failure(self.current)

    async def replace(self, spawn: Spawn) -> str:
        """Has a new parent import the job code as it is now, and forks from it from then on.

        The old parent stays until its workers have ended: it collects their exit codes.

        Returns:
            Why the new one cannot be used, so that the old one goes on; empty when it can.
        """
        candidate = self._make()
        self._start(candidate, spawn)
        failure = "it was interrupted"
        try:
            failure = await self._failure(candidate)
        finally:
            if failure:
                candidate.retire()
        if not failure:
            replaced, self.current = self.current, candidate
            replaced.retire()
        return failure

    def _start(self, parent: WarmParent, spawn: Spawn) -> None:
        self._running.add(parent)
        task = spawn(parent.run(), "warm-parent")
        task.add_done_callback(lambda _: self._running.discard(parent))

    async def _failure(self, parent: WarmParent) -> str:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                outcome = await asyncio.shield(parent.first)
        except TimeoutError:
            return f"no process imported the job code within {_PATIENCE_SECONDS:.0f} s"
        if isinstance(outcome, str):
            return outcome
        failures = [f"{name}: {outcome[name]}" for name in self._modules() if name in outcome]
        return "; ".join(failures)
