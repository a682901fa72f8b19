"""Events that running workflows record, appended for many threads together."""

from __future__ import annotations

import asyncio
import threading
from collections import deque

from penstock.bus.protocol import Bus, BusError, BusUnavailable, Outgoing
from penstock.worker.claiming.claimed_job import ClaimedJob


class ThreadAppends:
    """What threads append at one moment is sent to the broker in one round.

    Handing a coroutine to the loop costs a task, two futures and a condition for each event, and
    each event a write of its own: an inline step took 60 µs more of the worker that way.

    Args:
        loop: the worker's.
    """

    def __init__(self, bus: Bus, loop: asyncio.AbstractEventLoop) -> None:
        self._bus, self._loop = bus, loop
        self._waiting: deque[_Append] = deque()
        self._announced = False

    def __len__(self) -> int:
        """How many threads wait for the loop to take what they append."""
        return len(self._waiting)

    def append(self, job: ClaimedJob, message: Outgoing) -> int | BusError:
        """Stores an event of a job that runs in the calling thread, and waits for the answer.

        The job expects its next event behind this one then.

        Returns:
            Its sequence, else why it was not stored, as far as is known.
        """
        append = _Append(job, message)
        self._waiting.append(append)
        if not self._announced:
            self._announced = True
            self._loop.call_soon_threadsafe(self._begin)
        append.done.acquire()
        return append.answer

    def _begin(self) -> None:
        self._announced = False  # before they are taken, so that none is left behind
        appends: list[_Append] = []
        while self._waiting:
            appends.append(self._waiting.popleft())
        if appends:
            storing = self._loop.create_task(self._store(appends))
            for append in appends:
                append.job.appending = storing

    async def _store(self, appends: list[_Append]) -> None:
        try:
            answers = await self._bus.append_many([append.message for append in appends])
            for append, answer in zip(appends, answers, strict=True):
                append.answer = answer
                if isinstance(answer, int):
                    append.job.sequence = answer
        except BusError as error:
            for append in appends:
                append.answer = error
        finally:
            for append in appends:
                append.done.release()


class _Append:
    """One event, and the lock that its thread waits at."""

    __slots__ = ("answer", "done", "job", "message")

    def __init__(self, job: ClaimedJob, message: Outgoing) -> None:
        self.job, self.message = job, message
        self.answer: int | BusError = BusUnavailable("the worker ended before it was stored")
        self.done = threading.Lock()
        self.done.acquire()
