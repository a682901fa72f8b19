"""The life of a service process: connect, run until told to stop, close."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import uvloop

from penstock.bus.protocol import Bus
from penstock.config import Settings
from penstock.runtime.interpreter import PAUSING
from penstock.runtime.presence import shown
from penstock.runtime.tasks import Tasks
from penstock.runtime.waiting import within
from penstock.telemetry.checks import Checks
from penstock.telemetry.meters import Meters

log = logging.getLogger("penstock")

Body = Callable[["Service"], Awaitable[None]]


class Service:
    """What a running service is given.

    Attributes:
        name: ``metrics``, ``decider``, …; source: name and instance, the ``source`` of its events.
        stopping: set when the process was asked to end; loops wait for work or for this.
        meters / checks: the numbers it tells, and what must hold for it to be ready.
    """

    def __init__(self, name: str, settings: Settings, bus: Bus) -> None:
        self.name = name
        self.settings = settings
        self.bus = bus
        self.source = f"{name}/{socket.gethostname()}.{os.getpid()}"
        self.stopping = asyncio.Event()
        self.meters, self.checks = Meters(), Checks(name)
        self._pause_switch: Callable[[bool], None] | None = None
        self._pause_asked: bool | None = None
        self.failure: BaseException | None = None
        self._tasks = Tasks(self._died)

    def spawn(self, work: Coroutine[Any, Any, None], label: str) -> asyncio.Task[None]:
        """Runs a loop beside the others. A loop that dies ends the service, with its error."""
        return self._tasks.spawn(work, f"{self.name}:{label}")

    def switch_pause(self, paused: bool) -> None:
        """Pauses or resumes, where there is something to."""
        self._pause_asked = paused
        if self._pause_switch is None:
            log.warning("%s has nothing to pause", self.name)
        else:
            self._pause_switch(paused)

    def on_pause(self, switch: Callable[[bool], None]) -> None:
        """Has ``switch`` called with True at SIGUSR1, with False at SIGUSR2; for one that came
        earlier at once.
        """
        self._pause_switch = switch
        if self._pause_asked is not None:
            switch(self._pause_asked)

    def _died(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self.stopping.set()

    async def pause(self, seconds: float) -> bool:
        """Waits, or returns at once when stopping. True while the service goes on."""
        return not await within(seconds, self.stopping.wait())

    async def end_tasks(self) -> None:
        await self._tasks.cancel()


async def serve(name: str, settings: Settings, bus: Bus, body: Body) -> None:
    """Runs a service in this loop until it is told to stop (SIGTERM, SIGINT, SIGQUIT) or dies.

    Raises:
        BaseException: what killed one of its loops, after everything was closed.
    """
    service = Service(name, settings, bus)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        loop.add_signal_handler(number, service.stopping.set)
    loop.add_signal_handler(signal.SIGUSR1, service.switch_pause, True)
    loop.add_signal_handler(signal.SIGUSR2, service.switch_pause, False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PAUSING)
    try:
        async with shown(service):
            await body(service)
    finally:
        service.stopping.set()
        await service.end_tasks()
        await bus.close()
    if service.failure:
        raise service.failure


def run(name: str, settings: Settings, body: Body, *, makes_streams: bool = False) -> None:
    """The whole process of a service: connects to the broker and serves.

    Args:
        makes_streams: this service's key may make streams.
    """
    from penstock.bus.nats import connect  # noqa: PLC0415 - keeps the in-memory bus free of NATS

    signal.pthread_sigmask(signal.SIG_BLOCK, PAUSING)  # one that comes early waits

    async def whole() -> None:
        bus = await connect(settings, makes_streams=makes_streams)
        bus.makes_consumers = True
        await serve(name, settings, bus, body)

    uvloop.run(whole())
