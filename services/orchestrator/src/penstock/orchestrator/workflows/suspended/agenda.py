"""Which suspended workflows are to be looked after next."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping

from penstock.orchestrator.core.suspended import SuspendedWorkflow
from penstock.runtime.tasks import within

_LOOK_SECONDS = 1.0


class Agenda:
    """Ids of workflows.

    Args:
        unfinished: all of them.
        after_seconds: how long the worker that stored an advance may take to dispatch its steps.

    Attributes:
        unknown: those that are compared with the log when they are looked after.
    """

    def __init__(self, unfinished: Mapping[str, SuspendedWorkflow], after_seconds: float) -> None:
        self._unfinished = unfinished
        self._look_seconds = min(_LOOK_SECONDS, after_seconds / 4)
        self._next_check = self._next_due = 0.0
        self.unknown: set[str] = set()
        self._touched: set[str] = set()
        self._later: set[str] = set()
        self._woken = asyncio.Event()

    def __contains__(self, key: str) -> bool:
        """Whether something came for a workflow that was not looked into yet."""
        return key in self._touched or key in self.unknown

    def touch(self, key: str) -> None:
        """Has a workflow looked after in the next round, which begins at once."""
        self._touched.add(key)
        self._woken.set()

    def compare_soon(self, key: str) -> None:
        """The same, and compared with the log."""
        self.unknown.add(key)
        self.touch(key)

    def put_off(self, key: str) -> None:
        """Has it looked after in the next round, whenever that is."""
        self._later.add(key)

    def look_at(self, time: float) -> None:
        """Has those looked for whose time has come, at that time; POSIX seconds."""
        self._next_due = min(self._next_due, time)

    def take(self, now: float) -> set[str]:
        """Those of the round that begins."""
        due = self._touched | self._later | self._late(now)
        self._touched, self._later = set(), set()
        return due

    def give_back(self, keys: Iterable[str]) -> None:
        """Those that a round which failed has left."""
        self._touched.update(keys)

    async def wait(self, seconds: float) -> None:
        """Until something came; not longer than that."""
        await within(seconds, self._woken.wait())
        self._woken.clear()

    def _late(self, now: float) -> set[str]:
        """Those whose time to be looked at has come; at most once a second, among all."""
        if now < max(self._next_check, self._next_due):
            return set()
        self._next_check = now + self._look_seconds
        self._next_due = min((one.look_at for one in self._unfinished.values()), default=math.inf)
        return {key for key, one in self._unfinished.items() if one.look_at <= now}
