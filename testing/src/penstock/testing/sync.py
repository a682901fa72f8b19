"""The bench for tests without an event loop: the loop runs in a thread of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Self

from penstock.config import Settings
from penstock.jobs import Call, Client, SyncClient
from penstock.testing.assertions import Assertions
from penstock.testing.bench import Bench
from penstock.testing.crashing import Crash
from penstock.testing.workflow_run import SyncWorkflowRun


class SyncBench(Assertions):
    """As :class:`Bench`, for plain tests; ``client`` is a :class:`SyncClient`."""

    def __init__(self, settings: Settings | None = None, run_dir: str = "") -> None:
        self._bench = Bench(settings, run_dir)
        self.client = SyncClient(self._bench.settings, self._connection())
        super().__init__(self._bench.bus, self._bench.series)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Client]:
        yield self._bench.client

    def run_pending(self, timeout_seconds: float = 30.0) -> int:
        """See :meth:`Bench.run_pending`."""
        return self.client.call(self._bench.run_pending(timeout_seconds))

    def start(self, call: Call, **terms: Any) -> SyncWorkflowRun:
        """See :meth:`Bench.start`."""
        run = self.client.call(self._bench.start(call, **terms))
        return SyncWorkflowRun(self._bench, run.view, self.client.call)

    def crashing(self, *, at: int, after: bool = False) -> AbstractContextManager[Crash]:
        """See :meth:`Bench.crashing`."""
        return self._bench.crashing(at=at, after=after)

    def advance(self, length: float | timedelta) -> None:
        """See :meth:`Bench.advance`."""
        self.client.call(self._bench.advance(length))

    def now(self) -> datetime:
        """See :meth:`Bench.now`."""
        return self._bench.now()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.client.close()
