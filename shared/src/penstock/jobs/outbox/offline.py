"""Dispatching while the broker is away: fail, wait, or keep the jobs in a local outbox."""

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
from penstock.runtime.tasks import within

log = logging.getLogger("penstock.jobs")

_RETRY_SECONDS = 0.2


class OfflineSender:
    """Sends jobs, now or when the broker is back, as ``dispatch.when_away`` has it.

    Args:
        sender: sends while the broker answers.
        settings: of ``[dispatch]``.

    Attributes:
        waiting: jobs in the outbox.
    """

    def __init__(self, sender: Sender, settings: Dispatch) -> None:
        self._sender, self._settings = sender, settings
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
        """Opens the outbox and sends what an earlier process left in it. Raises OSError."""
        if self._settings.when_away == "outbox":
            path, most = self._settings.outbox_file, self._settings.outbox_max_jobs
            self._outbox = await asyncio.to_thread(Outbox, path, most)
            self.waiting = await asyncio.to_thread(len, self._outbox)
            self._start_sending()

    async def send(self, event: JobDispatched) -> None:
        """Sends one job, now or later.

        Raises:
            AlreadyDispatched, OutboxFull
            BusUnavailable: at once, or after the wait that the settings ask for.
        """
        if not self.waiting:  # else behind those that wait: the order is kept
            try:
                return await self._sender.send(event)
            except BusUnavailable:
                if self._settings.when_away == "fail":
                    raise
        return await self._send_later([event])

    async def send_many(self, events: Sequence[JobDispatched]) -> None:
        """Sends many, pipelined. Raises as :meth:`send`; jobs before it were accepted."""
        unsent = list(events) if self.waiting else await self._send_now(events)
        if unsent:
            await self._send_later(unsent)

    async def _send_now(self, events: Sequence[JobDispatched]) -> list[JobDispatched]:
        """Sends what the broker takes; returns the rest where that is no error."""
        answers: Sequence[int | BusError]
        try:
            answers = await self._sender.send_many(events)
        except BusUnavailable as error:
            answers = [error] * len(events)
        unsent = []
        for event, answer in zip(events, answers, strict=True):
            if isinstance(answer, BusUnavailable) and self._settings.when_away != "fail":
                unsent.append(event)
            elif isinstance(answer, BusError):
                raise answer
        return unsent

    async def _send_later(self, events: Sequence[JobDispatched]) -> None:
        if self._outbox is not None:
            return await self._put(self._outbox, events)
        for event in events:
            await self.wait(partial(self._sender.ensure_sent, event))
        return None

    async def wait(self, send: Callable[[], Awaitable[None]]) -> None:
        """Sends until it succeeds or its time is up.

        A loop of its own: whether to wait at all, and how long, is a setting of each client.

        Args:
            send: may be called any number of times.
        """
        deadline = asyncio.get_running_loop().time() + self._settings.wait_seconds
        while True:
            try:
                return await send()
            except BusUnavailable:
                if self._settings.when_away != "wait":
                    raise
                if asyncio.get_running_loop().time() >= deadline:
                    raise
            await asyncio.sleep(_RETRY_SECONDS)

    async def _put(self, outbox: Outbox, events: Sequence[JobDispatched]) -> None:
        self.waiting += len(events)
        try:
            await asyncio.to_thread(outbox.put, events)
        except BaseException:
            self.waiting -= len(events)
            raise
        self._start_sending()

    # --- later ------------------------------------------------------------------------------------
    def _start_sending(self) -> None:
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
            self._flushed_by = now + self._settings.outbox_close_seconds
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
        unsent = await asyncio.to_thread(len, self._outbox)
        if unsent and not quietly:
            log.warning(
                "%d jobs stay in the outbox %s: the next program that opens it sends them, or "
                "'penstock outbox flush'",
                unsent,
                self._outbox.path,
            )
        self._outbox.close()
        return unsent
