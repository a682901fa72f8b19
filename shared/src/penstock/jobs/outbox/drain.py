"""Sending the jobs of an outbox, in order."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Sequence

from penstock.bus.protocol import BusError, BusUnavailable, WrongSequence
from penstock.config import ConfigError
from penstock.events.job import JobDispatched
from penstock.jobs.dispatch.sender import Sender
from penstock.jobs.errors import AlreadyDispatched
from penstock.jobs.outbox.store import Entry, Outbox

log = logging.getLogger("penstock.jobs")

_RETRY_SECONDS = 0.2
_PAGE = 100
"""Jobs sent and removed together: one sync of the disk for each would be slower than dispatching,
so that a busy program's outbox would only grow."""


class Drain:
    """Sends the jobs of an outbox until none is left.

    Several processes may do so at the same time: a job that is sent twice exists once.

    Attributes:
        sent: jobs that the broker has stored.
    """

    def __init__(self, outbox: Outbox, sender: Sender) -> None:
        self._outbox, self._sender = outbox, sender
        self.sent = 0
        self._trouble = ""

    async def run(self) -> None:
        """Retries while the broker is away; by hand, since each page has its own outcome."""
        while True:
            try:
                entries = await asyncio.to_thread(self._outbox.first, _PAGE)
                if not entries:
                    return
                is_available = await self._send(entries)
            except sqlite3.Error as error:
                log.error("outbox %s: %s; trying again", self._outbox.path, error)
                is_available = False
            if not is_available:
                await asyncio.sleep(_RETRY_SECONDS)

    async def _send(self, entries: Sequence[Entry]) -> bool:
        """Sends one page; False when the broker went away meanwhile."""
        readable: list[tuple[Entry, JobDispatched]] = []
        for entry in entries:
            if entry.event is None:
                await self._refuse(entry, "it cannot be read: damaged, or of a newer version")
            else:
                readable.append((entry, entry.event))
        answers = await self._answers([event for _, event in readable])
        sent, is_available = [], True
        for (entry, event), answer in zip(readable, answers, strict=True):
            outcome = (
                await self._ensure_sent(event) if isinstance(answer, WrongSequence) else answer
            )
            if isinstance(outcome, BusUnavailable):
                is_available = False
            elif isinstance(outcome, Exception):
                await self._refuse(entry, str(outcome))
            else:
                sent.append(entry.number)
        if sent:
            await asyncio.to_thread(self._outbox.remove, sent)
            self.sent += len(sent)
        return is_available

    async def _answers(self, events: Sequence[JobDispatched]) -> Sequence[int | BusError]:
        try:
            return await self._sender.send_many(events)
        except (BusError, ConfigError) as error:  # no connection: the jobs are not at fault
            if not isinstance(error, BusUnavailable) and str(error) != self._trouble:
                self._trouble = str(error)
                log.warning("outbox %s: %s; trying again", self._outbox.path, error)
            return [BusUnavailable(str(error))] * len(events)

    async def _ensure_sent(self, event: JobDispatched) -> BusError | AlreadyDispatched | None:
        """A job of this id exists: this one, sent before it was removed here, or another."""
        try:
            await self._sender.ensure_sent(event)
        except (BusError, AlreadyDispatched) as error:
            return error
        return None

    async def _refuse(self, entry: Entry, why: str) -> None:
        log.error("job %s stays in %s: %s", entry.job_id, self._outbox.path, why)
        await asyncio.to_thread(self._outbox.refuse, entry.number, why)
