"""What a dispatch does while the broker is away: fail, wait, or go to a local outbox."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

from penstock.bus.protocol import BusError, BusUnavailable
from penstock.config.settings import Dispatch
from penstock.events.job import JobDispatched
from penstock.jobs.dispatch.sender import Sender
from penstock.jobs.outbox.drain import Drain
from penstock.jobs.outbox.store import Entry, Outbox
from penstock.runtime.waiting import within

log = logging.getLogger("penstock.jobs")

_AGAIN_SECONDS = 0.2


class OfflineSender:
    """Sends jobs, now or when the broker is back, as the settings say.

    Attributes:
        waiting: jobs in the outbox.
    """

    def __init__(self, sender: Sender, said: Dispatch) -> None:
        self._sender, self._said = sender, said
        self._outbox: Outbox | None = None
        self._sending: asyncio.Task[None] | None = None
        self._flushed_by: float | None = None
        self.waiting = 0

    @property
    def path(self) -> str:
        """The outbox's path; empty where there is none."""
        return self._outbox.path if self._outbox else ""

    async def entry(self, job_id: str) -> Entry | None:
        """The job of this id in the outbox; None where it is not there (any more)."""
        return await asyncio.to_thread(self._outbox.entry, job_id) if self._outbox else None

    async def count(self) -> int:
        """Jobs that wait in the outbox, those of other processes included."""
        return await asyncio.to_thread(len, self._outbox) if self._outbox else 0

    async def open(self) -> None:
        """Goes on with what an earlier process left. Raises OSError."""
        if self._said.when_away == "outbox":
            path, most = self._said.outbox_file, self._said.outbox_max_jobs
            self._outbox = await asyncio.to_thread(Outbox, path, most)
            self.waiting = await asyncio.to_thread(len, self._outbox)
            self._go_on()

    async def send(self, event: JobDispatched) -> None:
        """Raises AlreadyDispatched, OutboxFull; BusUnavailable, after a wait if so said."""
        if not self.waiting:  # else behind those that wait: the order is kept
            try:
                return await self._sender.send(event)
            except BusUnavailable:
                if self._said.when_away == "fail":
                    raise
        return await self._later([event])

    async def send_many(self, events: Sequence[JobDispatched]) -> None:
        """Many, pipelined; raises as :meth:`send`, those before it were taken."""
        left = list(events) if self.waiting else await self._not_taken(events)
        if left:
            await self._later(left)

    async def _not_taken(self, events: Sequence[JobDispatched]) -> list[JobDispatched]:
        """Those that were sent to a broker that is away, where that is no error."""
        answers: Sequence[int | BusError]
        try:
            answers = await self._sender.send_many(events)
        except BusUnavailable as error:
            answers = [error] * len(events)
        left = []
        for event, answer in zip(events, answers, strict=True):
            if isinstance(answer, BusUnavailable) and self._said.when_away != "fail":
                left.append(event)
            elif isinstance(answer, BusError):
                raise answer
        return left

    async def _later(self, events: Sequence[JobDispatched]) -> None:
        if self._outbox is not None:
            return await self._put(self._outbox, events)
        for event in events:
            await self.wait(partial(self._sender.ensure_sent, event))
        return None

    async def wait(self, send: Callable[[], Awaitable[None]]) -> None:
        """Sends until it succeeds or its time is up; ``send`` may be called again and again."""
        deadline = asyncio.get_running_loop().time() + self._said.wait_seconds
        while True:
            try:
                return await send()
            except BusUnavailable:
                if self._said.when_away != "wait":
                    raise
                if asyncio.get_running_loop().time() >= deadline:
                    raise
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _put(self, outbox: Outbox, events: Sequence[JobDispatched]) -> None:
        self.waiting += len(events)
        try:
            await asyncio.to_thread(outbox.put, events)
        except BaseException:
            self.waiting -= len(events)
            raise
        self._go_on()

    # --- later ------------------------------------------------------------------------------------
    def _go_on(self) -> None:
        if self._outbox is None or not self.waiting:
            return
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_waiting(self._outbox))

    async def _send_waiting(self, outbox: Outbox) -> None:
        await Drain(outbox, self._sender).run()
        self.waiting = await asyncio.to_thread(len, outbox)

    async def sent(self) -> None:
        """Returns when nothing waits any more."""
        while self._sending is not None and not self._sending.done():
            await asyncio.wait([self._sending])
            self._sending.result()

    async def flush(self) -> None:
        """Waits until nothing waits, for ``dispatch.outbox_close_seconds`` from the first call."""
        now = asyncio.get_running_loop().time()
        if self._flushed_by is None:
            self._flushed_by = now + self._said.outbox_close_seconds
        if self._sending is not None:
            await within(max(self._flushed_by - now, 0.0), asyncio.wait([self._sending]))

    async def close(self, *, quietly: bool = False) -> int:
        """Sends what waits, within ``dispatch.outbox_close_seconds``; the rest stays in the file.

        Args:
            quietly: log nothing of what stays: the caller reports it.

        Returns:
            How many jobs stay there, for the next process that opens it.
        """
        if self._outbox is None:
            return 0
        await self.flush()
        if self._sending is not None:
            self._sending.cancel()
            with suppress(asyncio.CancelledError):
                await self._sending
        left = await asyncio.to_thread(len, self._outbox)
        if left and not quietly:
            log.warning(
                "%d jobs stay in the outbox %s: the next program that opens it sends them, or "
                "'penstock outbox flush'",
                left,
                self._outbox.path,
            )
        self._outbox.close()
        return left
