"""What a running service is given: its settings and bus, its tasks, and when to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.bus.protocol import Bus
from penstock.config import Settings
from penstock.runtime.tasks import Tasks, within
from penstock.telemetry.checks import Checks
from penstock.telemetry.meters import Meters

log = logging.getLogger("penstock")


TakeSettings = Callable[[Settings], tuple[Settings, tuple[str, ...]]]


class Service:
    """One service in its process.

    Attributes:
        name: ``metrics``, ``decider``, …
        source: name and instance, the ``source`` of its events.
        stopping: set when the process was asked to end; loops wait for work or for this.
        meters: the numbers it publishes.
        checks: what must hold for it to be ready.
        take_settings: takes new settings over while it runs; None starts it anew with them.
    """

    def __init__(self, name: str, settings: Settings, bus: Bus) -> None:
        self.name = name
        self.settings = settings
        self.bus = bus
        self.source = f"{name}/{socket.gethostname()}.{os.getpid()}"
        self.stopping = asyncio.Event()
        self.meters, self.checks = Meters(), Checks(name)
        self._pause_switch: Callable[[bool], None] | None = None
        self._pause_requested: bool | None = None
        self.take_settings: TakeSettings | None = None
        self._on_reload: Callable[[], None] | None = None
        self._reload_requested = False
        self.failure: BaseException | None = None
        self._tasks = Tasks(self._died)

    def spawn(self, work: Coroutine[Any, Any, None], label: str) -> asyncio.Task[None]:
        """Runs a loop beside the others. A loop that dies ends the service, with its error."""
        return self._tasks.spawn(work, f"{self.name}:{label}")

    def switch_pause(self, paused: bool) -> None:
        """Pauses or resumes, if the service can."""
        self._pause_requested = paused
        if self._pause_switch is None:
            log.warning("%s cannot be paused: the signal is ignored", self.name)
        else:
            self._pause_switch(paused)

    def on_pause(self, switch: Callable[[bool], None]) -> None:
        """Has ``switch`` called with True at SIGUSR1, with False at SIGUSR2; for one that came
        earlier at once.
        """
        self._pause_switch = switch
        if self._pause_requested is not None:
            switch(self._pause_requested)

    def on_new_settings(self, take: TakeSettings) -> None:
        """Has ``take`` called with new settings, in place of an end and a new start.

        Args:
            take: returns the settings in force after it, and the dotted names of those that wait
                for a restart.
        """
        self.take_settings = take

    def reload(self) -> None:
        """Reloads the job code, if the service has any."""
        self._reload_requested = True
        if self._on_reload is not None:
            self._on_reload()

    def on_reload(self, reload: Callable[[], None]) -> None:
        """Has ``reload`` called at SIGHUP; for one that came earlier at once."""
        self._on_reload = reload
        if self._reload_requested:
            reload()

    def _died(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self.stopping.set()

    async def pause(self, seconds: float) -> bool:
        """Waits, or returns at once when stopping. True while the service goes on."""
        return not await within(seconds, self.stopping.wait())

    async def end_tasks(self) -> None:
        await self._tasks.cancel()
