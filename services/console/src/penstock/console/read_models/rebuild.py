"""Makes the rows anew in a second database, while the first one serves and is folded on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import apsw

from penstock.bus.protocol import Bus, BusError, Stored
from penstock.console.read_models.databases import Databases
from penstock.console.read_models.log_batches import MOST_AT_ONCE, Pace, batches, entry
from penstock.console.read_models.log_start import LogStart
from penstock.console.read_models.store import Store
from penstock.events.subjects import Subjects
from penstock.runtime.service import Service

T = TypeVar("T")
log = logging.getLogger("penstock.console")

_RETRY_SECONDS = 1.0
_AGAIN_SECONDS = 60.0
_OLD_SECONDS = 10.0
"""A query of the former database has ended by then."""


class InWriter(Protocol):
    """Runs a call in the one thread that writes."""

    def __call__(self, work: Callable[..., T], *arguments: object) -> Awaitable[T]: ...


class Rebuild:
    """Follows the event log from its beginning into the next database, then has that one serve.

    A kill loses nothing: the next start goes on at the next database's own position.

    Args:
        bus: a connection of this service.
        subjects: of the installation.
        databases: the one that serves, and the next.
        in_writer: runs what writes.
        switched: called when another database serves.

    Attributes:
        has_moved: set once this process has folded some of the log into the next database.
    """

    def __init__(
        self,
        bus: Bus,
        subjects: Subjects,
        databases: Databases,
        in_writer: InWriter,
        switched: Callable[[], None],
    ) -> None:
        self._bus, self._subjects, self._databases = bus, subjects, databases
        self._in_writer, self._switched = in_writer, switched
        self._requested, self.has_moved = asyncio.Event(), asyncio.Event()
        self._reason, self._gap = databases.reason, ""
        self._read = self._goal = 0
        if databases.next is not None:
            self._requested.set()

    @property
    def text(self) -> str:
        """Why it runs and how far it is; empty while it does not run."""
        if self._databases.next is None:
            return ""
        share = min(self._read / self._goal, 1.0) if self._goal else 0.0
        return f"{self._reason}: {100 * share:.0f} % of the event log is read"

    async def begin(self, reason: str, gap: str = "") -> None:
        """Begins, unless it runs already.

        Args:
            reason: for people.
            gap: what of the history is missing in the new rows; empty where that is not known yet.
        """
        if self._databases.next is not None:
            return
        log.warning("the rows are made anew from the event log: %s", reason)
        self._reason, self._gap, self._read, self._goal = reason, gap, 0, 0
        store = await self._in_writer(self._databases.begin_next, reason)
        if gap:
            await self._in_writer(store.set_fact, "gap", gap)
        self._requested.set()

    async def run(self, service: Service) -> None:
        """Makes what was begun, until the service stops."""
        while True:
            await self._requested.wait()
            try:
                while (store := self._databases.next) is not None:
                    await self._follow(store)
            except BusError as error:
                log.warning("the event log cannot be followed, trying again: %s", error)
                await service.pause(_RETRY_SECONDS)
                continue
            except apsw.Error as error:
                log.error("the rows cannot be made anew: %s", error)
                await self._give_up(service)
                continue
            self._requested.clear()
            await service.pause(_OLD_SECONDS)
            await self._in_writer(self._databases.remove_old)

    async def _give_up(self, service: Service) -> None:
        """Where the disk is full, say. Rows that cannot be folded on need new ones: later."""
        await self._in_writer(self._databases.give_up_next)
        self._requested.clear()
        if self._databases.is_frozen:
            await service.pause(_AGAIN_SECONDS)
            await self.begin(self._reason, self._gap)

    async def _follow(self, store: Store) -> None:
        """Folds into a database until it serves, or until the log does not continue."""
        start, stream = LogStart(self._bus, self._subjects), self._subjects.events_stream
        if reason := await start.why_not_continued(store.position):
            await self._in_writer(store.begin_anew, reason)
        await self._in_writer(note_start, store, start)
        self._read, self._goal = store.position, (await self._bus.extent(stream)).last
        if await self._has_switched(store):
            self.has_moved.set()
            return
        messages = self._bus.follow(stream, [self._subjects.events()], store.position + 1)
        async for batch, _ in batches(messages, MOST_AT_ONCE, Pace()):
            skipped = batch[-1].sequence - self._read - len(batch)
            if skipped > 0 and await start.why_not_continued(self._read):
                return
            await self._in_writer(_apply, store, batch)
            self.has_moved.set()
            self._read = batch[-1].sequence
            if await self._has_switched(store):
                return

    async def _has_switched(self, store: Store) -> bool:
        if self._read < self._goal or not await self._in_writer(self._switch_if_ahead, store):
            return False
        log.info("the rows that were made anew serve now, up to event %d", self._read)
        self._switched()
        return True

    def _switch_if_ahead(self, store: Store) -> bool:
        """In the thread that writes: no batch is folded into the former database meanwhile."""
        if not self._databases.is_frozen and store.position < self._databases.current.position:
            return False
        self._databases.switch()
        return True


def note_start(store: Store, start: LogStart) -> None:
    """Notes since when rows are complete that are folded from the first event on."""
    if store.position == 0 and start.missing:
        with store.reading() as rows:
            gap = rows.fact("gap")
        store.set_fact("gap", gap or start.missing)
        store.set_fact("complete_since", start.since.isoformat() if start.since else "")


def _apply(store: Store, batch: list[Stored]) -> None:
    store.apply([entry(message) for message in batch])
