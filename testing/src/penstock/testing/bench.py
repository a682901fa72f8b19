"""A broker in memory, a client of it, and the real worker and orchestrator on demand."""

from __future__ import annotations

import time
from datetime import timedelta

from penstock.config import Settings
from penstock.jobs import Client
from penstock.testing.assertions import Assertions
from penstock.testing.memory.bus import MemoryBus
from penstock.testing.running import Run


class Clock:
    """The time of day, moved forward as a test says."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_seconds


class Bench(Assertions):
    """For one `async` test; all of it in this event loop.

    Attributes:
        client: what the code under test dispatches with.
        bus: the broker in memory, for those who want to look closer.

    Args:
        settings: pools, limits, encryption and Spark that the jobs run with.
        run_dir: where the Spark supervisor listens; empty for none.

    Example::

        async def test_a_new_order_is_confirmed(penstock):
            await place_order(penstock.client, number=7)
            penstock.assert_dispatched(send_mail, number=7)
            await penstock.run_pending()
            assert outbox == ["order 7"]
    """

    def __init__(self, settings: Settings | None = None, run_dir: str = "") -> None:
        self._run_dir = run_dir
        self.settings = settings or Settings()
        self._clock = Clock()
        self.bus = MemoryBus(settings=self.settings, now=self._clock)
        self.client = Client.over(self.bus.client(), self.settings)
        super().__init__(self.bus)

    async def run_pending(self, timeout_seconds: float = 30.0) -> int:
        """Runs the jobs that wait, here, and what follows from them; returns how many attempts ran.

        By the real worker, with a real context; retries run at once, however long their backoff;
        batches, chains and graphs go on to their end, callbacks included. Delayed jobs and ticks of
        schedules wait until :meth:`advance` has moved the time.

        Raises:
            TimeoutError: they have not come to an end, the text says which.
        """
        run = Run(self.bus, self.settings, self._run_dir, self.series)
        return await run.until_idle(timeout_seconds)

    async def advance(self, length: float | timedelta) -> None:
        """Moves the broker's time forward: what is due then goes into its queue.

        Ticks of schedules are dispatched by the next :meth:`run_pending`; of those that lie more
        than half a minute back, as after a time without an orchestrator, the latest only.

        Args:
            length: seconds.
        """
        seconds = length.total_seconds() if isinstance(length, timedelta) else length
        self._clock.ahead_seconds += seconds
        self.bus.tick()
