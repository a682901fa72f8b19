"""The present state of pools, hosts and workers, in memory: the newest of each, as it is published.

It needs no database: the streams keep the last snapshot of everything, so a start reads it at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.bus.protocol import Bus, BusError
from penstock.config import Settings
from penstock.config.profiles import Pool
from penstock.config.topology import pools
from penstock.console.read_models.reported_workers import ReportedWorkers
from penstock.events.envelope import Event, utc_now
from penstock.events.snapshot import HostSnapshot
from penstock.events.subjects import Subjects
from penstock.operations.settings_in_force import decider_settings
from penstock.runtime.service import Service
from penstock.views.board_follower import follow_board
from penstock.views.live_workers import WorkerRow
from penstock.views.pool_board import Board, HostRow, PoolRow

log = logging.getLogger("penstock.console")

_SETTINGS_SECONDS = 5.0
_RETRY_SECONDS = 1.0


class Present:
    """What is now.

    Args:
        bus: a connection of this service.
        settings: pools and promises until the decider has published its own.
        changed: called with ``pools``, ``hosts`` or ``workers`` whenever one of them may have.
        took: called with each snapshot and decision.

    Attributes:
        version: counts up with each change.
    """

    def __init__(
        self,
        bus: Bus,
        settings: Settings,
        changed: Callable[[str], None],
        took: Callable[[Event], None] = lambda _: None,
    ) -> None:
        self._bus, self._changed, self._took_one = bus, changed, took
        self._subjects = Subjects(settings.prefix)
        self._settings = settings
        self._board = Board()
        self._workers = ReportedWorkers(self._subjects)
        self.version = 0

    @property
    def settings(self) -> Settings:
        """Those that the decider works with, where it has published them."""
        return self._settings

    @property
    def pools(self) -> dict[str, Pool]:
        """The configured pools, by name."""
        return pools(self._settings)

    @property
    def board(self) -> Board:
        """The newest snapshots, decisions and orders."""
        return self._board

    def pool_rows(self) -> list[PoolRow]:
        """A row for each configured pool."""
        lease_seconds = self._settings.host.lease_seconds
        return self._board.pool_rows(self.pools.values(), lease_seconds, utc_now())

    def host_rows(self) -> list[HostRow]:
        """A row for each host whose snapshot the stream still holds."""
        return self._board.host_rows(self._settings.host.lease_seconds, utc_now())

    def worker_rows(self) -> list[WorkerRow]:
        """A row for each worker that reported lately, by pool and name."""
        return self._workers.rows()

    async def run(self, service: Service) -> None:
        """Follows until the service stops; starts again where the broker is away."""
        service.spawn(self._refresh_settings(service), "settings in force")
        await self._listen(service)
        while not service.stopping.is_set():
            try:
                await follow_board(self._bus, self._subjects, self._board, self._took)
            except* BusError as errors:
                log.warning("snapshots cannot be followed, trying again: %s", errors.exceptions[0])
            await service.pause(_RETRY_SECONDS)

    async def _listen(self, service: Service) -> None:
        while True:
            try:
                await self._bus.listen(self._subjects.worker_report("*", "*"), self._take_report)
                return
            except BusError as error:
                log.warning("reports of workers are not received, trying again: %s", error)
            if not await service.pause(_RETRY_SECONDS):
                return

    def _take_report(self, subject: str, body: bytes) -> None:
        if self._workers.take(subject, body):
            self._note("workers")

    def _took(self, event: Event) -> None:
        if isinstance(event, HostSnapshot):
            self._workers.see(event)
        self._took_one(event)
        self._note("hosts" if event.noun == "host" else "pools")

    def _note(self, what: str) -> None:
        self.version += 1
        self._changed(what)

    async def _refresh_settings(self, service: Service) -> None:
        while True:
            self._workers.forget_silent()
            try:
                in_force = await decider_settings(self._bus, self._subjects)
                if in_force is not None and in_force != self._settings:
                    self._settings = in_force
                    self._note("pools")
            except BusError as error:
                log.debug("the settings in force cannot be read: %s", error)
            if not await service.pause(_SETTINGS_SECONDS):
                return
