"""Has new rows found by their texts: behind the fold, many at once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import apsw

from penstock.console.read_models.databases import Databases
from penstock.console.read_models.rebuild import InWriter
from penstock.console.read_models.store import Store
from penstock.runtime.service import Service

T = TypeVar("T")
log = logging.getLogger("penstock.console")

_PAUSE_SECONDS = 1.0
_RENEW_SECONDS = 60.0


class Indexer:
    """Indexes what is marked, in the database that serves and in the one made anew beside it.

    Args:
        databases: both.
        in_writer: runs what writes to them.

    Attributes:
        is_held_back: set while rows are behind the event log: they go first.
    """

    def __init__(self, databases: Databases, in_writer: InWriter) -> None:
        self._databases, self._in_writer = databases, in_writer
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="console-texts")
        self._renew_at = 0.0
        self.is_held_back = False

    async def run(self, service: Service) -> None:
        """Runs until the service stops."""
        while not service.stopping.is_set():
            has_more = False
            for store in (self._databases.current, self._databases.next):
                if store is not None and not self.is_held_back:
                    has_more |= await self._try(store)
            await service.pause(0.0 if has_more else _PAUSE_SECONDS)

    def close(self) -> None:
        """Ends the thread, after what it does now."""
        self._thread.shutdown(wait=True)

    async def _try(self, store: Store) -> bool:
        try:
            return await self._index(store)
        except apsw.Error as error:  # the disk is full, say; or another database serves now
            log.warning("texts of rows are not indexed, trying again: %s", error)
            return False

    async def _index(self, store: Store) -> bool:
        """Whether there may be more."""
        texts = store.texts
        if texts is None:
            return False
        last, has_more = await self._in_thread(texts.index_some)
        if last:
            await self._in_writer(store.forget_marks, last)
        if not has_more and time.monotonic() >= self._renew_at:
            has_more = await self._in_thread(lambda: texts.renew_some(round(time.time() * 1e6)))
            self._renew_at = 0.0 if has_more else time.monotonic() + _RENEW_SECONDS
        return has_more

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
