"""The life of a service process: connect, run until asked to stop, close."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable

import uvloop

from penstock.bus.protocol import Bus
from penstock.config import ConfigError, Settings
from penstock.config.topology import pools
from penstock.runtime.interpreter import HELD_BACK, has_terminal
from penstock.runtime.presence import shown
from penstock.runtime.reloading import Check, Reloader, Reread
from penstock.runtime.service import Service

log = logging.getLogger("penstock")

Body = Callable[[Service], Awaitable[None]]


def run(
    name: str,
    settings: Settings,
    body: Body,
    *,
    makes_streams: bool = False,
    reread: Reread | None = None,
    check: Check = pools,
) -> None:
    """The whole process of a service: connects to the broker and serves.

    With settings that were reloaded it goes on in the same process: its supervisor sees no end. If
    the broker cannot be reached with them, or the service refuses them when it starts (a port that
    is taken), it goes on with those of before, and publishes why.

    Args:
        makes_streams: this service's key may make streams.
        reread: reads the settings anew when a reload is asked for.
        check: raises ConfigError where this service could not work with new settings.
    """
    from penstock.bus.nats import connect  # noqa: PLC0415 - keeps the in-memory bus free of NATS

    signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)  # one that comes early waits

    async def connect_and_serve(settings: Settings, refused: str) -> Settings | None:
        bus = await connect(settings, makes_streams=makes_streams)
        bus.reader.makes_consumers = True
        return await serve(name, settings, bus, body, reread, check, refused)

    former: Settings | None = None
    refused = ""
    while True:
        try:
            new = uvloop.run(connect_and_serve(settings, refused))
        except Exception as error:
            if former is None:
                raise
            if former.nats == settings.nats and not isinstance(error, ConfigError):
                raise
            log.error("the new settings cannot be used, those of before are: %s", error)
            settings, former, refused = former, None, str(error)
            continue
        if new is None:
            return
        settings, former, refused = new, settings, ""


async def serve(
    name: str,
    settings: Settings,
    bus: Bus,
    body: Body,
    reread: Reread | None = None,
    check: Check = pools,
    refused: str = "",
) -> Settings | None:
    """Runs a service in this loop until it is asked to stop (SIGTERM, SIGINT, SIGQUIT) or dies.

    SIGHUP asks it to reload its settings, and its job code where it has any; and to stop where its
    terminal was closed.

    Returns:
        The settings that it is to be started with anew; None where it has ended for good.

    Raises:
        BaseException: what killed one of its loops, after everything was closed.
    """
    service = Service(name, settings, bus)
    reloader = Reloader(service, reread, check, refused)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        loop.add_signal_handler(number, service.stopping.set)
    loop.add_signal_handler(signal.SIGUSR1, service.switch_pause, True)
    loop.add_signal_handler(signal.SIGUSR2, service.switch_pause, False)
    had_terminal = has_terminal()

    def hang_up() -> None:
        if had_terminal and not has_terminal():
            service.stopping.set()
        else:
            reloader.reload()
            service.reload()

    loop.add_signal_handler(signal.SIGHUP, hang_up)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_BACK)
    try:
        async with shown(service):
            service.spawn(reloader.run(), "settings")
            await body(service)
    finally:
        service.stopping.set()
        await service.end_tasks()
        await reloader.say_ended()
        signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)
        await bus.close()
    if service.failure:
        raise service.failure
    return reloader.next
