"""The life of a service process: connect, run until asked to stop, close."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable

import uvloop

from penstock.bus.protocol import Bus
from penstock.config import Settings
from penstock.runtime.interpreter import HELD_BACK, has_terminal
from penstock.runtime.presence import shown
from penstock.runtime.service import Service

Body = Callable[[Service], Awaitable[None]]


def run(name: str, settings: Settings, body: Body, *, makes_streams: bool = False) -> None:
    """The whole process of a service: connects to the broker and serves.

    Args:
        makes_streams: this service's key may make streams.
    """
    from penstock.bus.nats import connect  # noqa: PLC0415 - keeps the in-memory bus free of NATS

    signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)  # one that comes early waits

    async def connect_and_serve() -> None:
        bus = await connect(settings, makes_streams=makes_streams)
        bus.reader.makes_consumers = True
        await serve(name, settings, bus, body)

    uvloop.run(connect_and_serve())


async def serve(name: str, settings: Settings, bus: Bus, body: Body) -> None:
    """Runs a service in this loop until it is asked to stop (SIGTERM, SIGINT, SIGQUIT) or dies.

    SIGHUP asks it to reload, and to stop where its terminal was closed.

    Raises:
        BaseException: what killed one of its loops, after everything was closed.
    """
    service = Service(name, settings, bus)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        loop.add_signal_handler(number, service.stopping.set)
    loop.add_signal_handler(signal.SIGUSR1, service.switch_pause, True)
    loop.add_signal_handler(signal.SIGUSR2, service.switch_pause, False)
    had_terminal = has_terminal()
    loop.add_signal_handler(signal.SIGHUP, _on_hangup, service, had_terminal)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_BACK)
    try:
        async with shown(service):
            await body(service)
    finally:
        service.stopping.set()
        await service.end_tasks()
        await bus.close()
    if service.failure:
        raise service.failure


def _on_hangup(service: Service, had_terminal: bool) -> None:
    if had_terminal and not has_terminal():
        service.stopping.set()
    else:
        service.reload()
