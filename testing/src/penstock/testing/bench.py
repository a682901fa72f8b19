"""A broker in memory, a client of it, and the real worker and orchestrator on demand."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.config import Settings
from penstock.jobs import Call, Client
from penstock.testing.assertions import Assertions
from penstock.testing.crashing import Crash
from penstock.testing.endings import held_subjects
from penstock.testing.memory.bus import MemoryBus
from penstock.testing.running import Run
from penstock.testing.workflow_run import WorkflowRun


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
        self.bus = MemoryBus(
            settings=self.settings,
            now=self._clock,
            ahead_seconds=lambda: self._clock.ahead_seconds,
        )
        self.client = Client.over(self.bus.client(), self.settings)
        self._crash: Crash | None = None
        super().__init__(self.bus)

    async def start(self, call: Call, **terms: Any) -> WorkflowRun:
        """Dispatches a workflow, without running it.

        Args:
            call: of a workflow.
            terms: as of :meth:`penstock.jobs.Client.dispatch`.

        Example::

            async def test_an_approved_order_is_shipped(penstock):
                order = await penstock.start(fulfil(order=7))
                await order.run(until="approved")
                await order.signal("approved", True)
                await order.run()
                order.assert_completed("shipped")
        """
        workflow_id = await self.client.dispatch(call, **terms)
        return WorkflowRun(self, await self.client.workflows.get(workflow_id))

    @contextmanager
    def crashing(self, *, at: int, after: bool = False) -> Iterator[Crash]:
        """Has a worker killed once, while the block lasts; another one goes on after it.

        Args:
            at: number of the event, counted from 1 on among those that workers store in the block:
                starts, recorded steps, advances, dispatches, ends.
            after: just after the event was stored; else just before.

        Example::

            @pytest.mark.parametrize("at", range(1, 20))
            async def test_no_crash_charges_twice(penstock, at):
                order = await penstock.start(fulfil(order=7))
                with penstock.crashing(at=at):
                    await order.run()
                order.assert_ran(charge, times=1)
        """
        self._crash = crash = Crash(at, after=after)
        try:
            yield crash
        finally:
            self._crash = None

    async def skip_to_next_timer(self, margin_seconds: float = 0.001) -> bool:
        """Moves the time to the next timer, delayed job or retry; False where there is none.

        Args:
            margin_seconds: how much further.
        """
        now = self._clock()
        held = held_subjects(self.bus)
        due = [at for subject, at in self.bus.due_times().items() if subject not in held]
        if not due:
            return False
        await self.advance(max(min(due) - now, 0.0) + margin_seconds)
        return True

    async def run_pending(self, timeout_seconds: float = 30.0) -> int:
        """Runs the jobs that wait, here, and what follows from them; returns how many attempts ran.

        By the real worker, with a real context; retries run at once, however long their backoff;
        batches, chains and graphs go on to their end, callbacks included. Delayed jobs and ticks of
        schedules wait until :meth:`advance` has moved the time.

        Raises:
            TimeoutError: they have not come to an end, the text says which.
        """
        run = Run(self.bus, self.settings, self._run_dir, self.series, self._crash, self._move_time)
        return await run.until_idle(timeout_seconds)

    async def advance(self, length: float | timedelta) -> None:
        """Moves the time forward: what is due then goes into its queue.

        It is the time of all that is recorded from then on, of `ctx.now()` and of timers. Code that
        asks the operating system, as `datetime.now()` in a job, gets the real one.

        Ticks of schedules are dispatched by the next :meth:`run_pending`; of those that lie more
        than half a minute back, as after a time without an orchestrator, the latest only.

        Args:
            length: seconds.
        """
        seconds = length.total_seconds() if isinstance(length, timedelta) else length
        self._move_time(seconds)

    def now(self) -> datetime:
        """The time of all that is recorded: the real one, and as far ahead as it was moved."""
        return datetime.fromtimestamp(self._clock(), UTC)

    def _move_time(self, seconds: float) -> None:
        self._clock.ahead_seconds += seconds
        self.bus.tick()
