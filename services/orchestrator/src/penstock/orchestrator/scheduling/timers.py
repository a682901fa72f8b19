"""Timers of delayed jobs: the broker looks at its own schedules only every 250 ms.

What is due is stored in its queue, in place of its schedule: one message, of which the broker takes
it or refuses it because the schedule has fired, or another orchestrator was first. So any number of
orchestrators may do this, and none: the broker is up to 250 ms later, and nothing is lost.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from contextlib import suppress

from penstock.bus.protocol import Bus, BusError, Expect, Outgoing
from penstock.events.subjects import Subjects
from penstock.jobs.queues import queue_messages
from penstock.orchestrator.core.unresolved import Step
from penstock.runtime.tasks import within

log = logging.getLogger("penstock.orchestrator")

MOST_KEPT = 100_000
MOST_AT_ONCE = 100
"""When more are due at one instant, the broker fires them: it is quicker at many."""
_LONGEST_PAUSE_SECONDS = 1.0
"""The broker's clock, by which they are due, is learned anew from time to time."""


class Timers:
    """Keeps which jobs are due when, and starts them."""

    def __init__(self, bus: Bus, subjects: Subjects) -> None:
        self._bus, self._subjects = bus, subjects
        self._has_sooner = asyncio.Event()
        self._due: list[tuple[float, str, str]] = []
        self._kept: set[tuple[float, str, str]] = set()

    def see(self, step: Step) -> None:
        """A step of a job; those that are due at a time are kept."""
        due = step.due_at or 0.0
        entry = (due, step.queue, step.job_id)
        if not step.queue or entry in self._kept:
            return
        if due > self._bus.now() and len(self._due) < MOST_KEPT:
            self._kept.add(entry)
            heapq.heappush(self._due, entry)
            if self._due[0] == entry:
                self._has_sooner.set()

    async def run(self) -> None:
        """Starts what is due, without end."""
        while True:
            await within(self._next_look(self._bus.now()), self._has_sooner.wait())
            self._has_sooner.clear()
            due = self.take(self._bus.now())
            # A flood at one instant is left to the broker, which fires many quicker than requests.
            if 0 < len(due) <= MOST_AT_ONCE:
                await asyncio.gather(*(self._start(queue, job_id) for queue, job_id in due))

    def take(self, now: float) -> list[tuple[str, str]]:
        """Queue and id of those that are due (POSIX seconds by the broker), and no longer kept."""
        due = []
        while self._due and self._due[0][0] <= now:
            entry = heapq.heappop(self._due)
            self._kept.discard(entry)
            _, queue, job_id = entry
            due.append((queue, job_id))
        return due

    def _next_look(self, now: float) -> float:
        first = self._due[0][0] if self._due else now + _LONGEST_PAUSE_SECONDS
        return min(max(first - now, 0.001), _LONGEST_PAUSE_SECONDS)

    async def _start(self, queue: str, job_id: str) -> None:
        schedule = self._subjects.schedule(queue, job_id)
        with suppress(BusError):  # it has fired, or the broker does it
            kept = await self._bus.last(self._subjects.jobs_stream, schedule)
            if kept is None or (queue_messages.due_at(kept.headers) or 0.0) > self._bus.now():
                return  # it has fired, or was replaced by a later one
            headers = {
                **kept.headers, "Nats-Schedule-Next": "purge", "Nats-Scheduler": schedule
            }  # fmt: skip
            await self._bus.append(
                Outgoing(
                    self._subjects.queue(queue),
                    kept.body,
                    headers,
                    Expect(kept.sequence, schedule),
                )
            )
