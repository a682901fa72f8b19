"""All of bulk actions that a console runs, and what endpoints and pages ask of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from penstock.bus.protocol import Bus
from penstock.config import Settings
from penstock.console.bulk.directory import Directory
from penstock.console.bulk.runner import Runner
from penstock.console.core.bulk.actions import Action, Position
from penstock.console.core.bulk.verbs import Selection
from penstock.console.read_models import bulk_selection
from penstock.console.read_models.bulk_selection import Counted, Moment
from penstock.console.read_models.databases import Databases
from penstock.console.read_models.projection import Projection
from penstock.console.read_models.store import Snapshot
from penstock.events.envelope import new_id
from penstock.events.subjects import Subjects
from penstock.operations.audit_log import AuditLog
from penstock.runtime.service import Service

T = TypeVar("T")
_FOLDED_SECONDS = 30.0


class BulkActions:
    """Previews, runs and lists bulk actions.

    Args:
        bus: a connection of this service.
        settings: of this process.
        store: the rows that sets are chosen from; read in a thread of its own, since a set may be
            a million rows.
        projection: how current these are.
        audit: where the end of each action is recorded.
        changed: called when something that pages show has changed.
    """

    def __init__(
        self,
        bus: Bus,
        settings: Settings,
        store: Databases,
        projection: Projection,
        audit: AuditLog,
        changed: Callable[[], None],
    ) -> None:
        self._store, self._projection = store, projection
        self._is_reader = settings.console.read_only
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="console-bulk")
        self.directory = Directory(bus, Subjects(settings.prefix), changed)
        self._runner = Runner(bus, settings, self.directory, audit, self._next_part, new_id())

    async def run(self, service: Service) -> None:
        """Runs until the service stops."""
        if not self._is_reader:
            service.spawn(self._runner.run(service), "bulk actions")
        await self.directory.run(service)

    async def count(self, chosen: Selection, moment: Moment) -> Counted:
        """A set as it is now."""
        return await self._read(lambda rows: bulk_selection.count(rows, chosen, moment))

    def close(self) -> None:
        """Ends the thread."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    async def _next_part(
        self, action: Action, chosen: Selection, after: Position | None, most: int
    ) -> list[tuple[Any, Position]]:
        """Raises TimeoutError: this console has not read the log so far yet."""
        start = action.start
        if not await self._projection.reached(start.position, _FOLDED_SECONDS):
            raise TimeoutError(f"event {start.position} is not folded yet")
        moment = Moment(position=start.position, at=start.chosen_at)
        return await self._read(lambda rows: bulk_selection.part(rows, chosen, moment, after, most))

    async def _read(self, query: Callable[[Snapshot], T]) -> T:
        def run() -> T:
            with self._store.reading() as rows:
                return query(rows)

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)
