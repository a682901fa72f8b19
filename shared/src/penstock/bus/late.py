"""A bus whose broker need not be there yet: each call fails as unavailable until it is."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from penstock.bus.nats import connect
from penstock.bus.protocol import Bus, BusUnavailable, NotLetIn
from penstock.config import NoBrokerKnown, Settings

log = logging.getLogger("penstock.bus")

Locate = Callable[[Settings], Settings]

_AGAIN_SECONDS = 0.2
_MOMENT_SECONDS = 1.0


async def late_bus(settings: Settings, name: str, locate: Locate) -> Bus:
    """A bus that continues to connect in the background where that takes longer than a moment.

    Args:
        locate: gives the settings with the broker's address in them; asked before each try.
    """
    bus = LateBus(settings, name, locate)
    await asyncio.wait([bus.connecting], timeout=_MOMENT_SECONDS)
    return cast("Bus", bus)


class LateBus:
    """Has every method of :class:`penstock.bus.protocol.Bus`.

    Connects in a loop of its own: each try looks for the broker anew, and logs a refusal once.
    """

    def __init__(self, settings: Settings, name: str, locate: Locate) -> None:
        self._settings, self._name, self._locate = settings, name, locate
        self._bus: Any = None
        self.connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        is_refusal_logged = False
        while True:
            try:
                self._bus = await connect(self._locate(self._settings), self._name)
                return
            except (BusUnavailable, NoBrokerKnown) as error:
                is_new_refusal = isinstance(error, NotLetIn) and not is_refusal_logged
                is_refusal_logged |= is_new_refusal
                log.log(
                    logging.WARNING if is_new_refusal else logging.INFO, "%s; trying again", error
                )
            await asyncio.sleep(_AGAIN_SECONDS)

    def now(self) -> float:
        """POSIX seconds by the broker's clock; by this machine's until the broker has answered."""
        return time.time() if self._bus is None else float(self._bus.now())

    @property
    def connected(self) -> bool:
        return self._bus is not None and bool(self._bus.connected)

    def __getattr__(self, name: str) -> Any:
        if self._bus is not None:
            return getattr(self._bus, name)
        return self._not_yet

    async def _not_yet(self, *_: Any, **__: Any) -> Any:
        if self.connecting.done():
            self.connecting.result()  # refused: it will never be
        raise BusUnavailable("no broker has answered yet")

    async def close(self) -> None:
        self.connecting.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await self.connecting
        if self._bus is not None:
            await self._bus.close()
