"""What a worker does again and again, each thing at its own pace."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from penstock.bus.protocol import BusError

log = logging.getLogger("penstock.worker")

_TICK_SECONDS = 0.25


async def go_round(paces: Mapping[Callable[[], Awaitable[None]], float]) -> None:
    """Does each thing every so many seconds; what the broker refuses is tried the next time."""
    done = dict.fromkeys(paces, time.monotonic())
    while True:
        await asyncio.sleep(_TICK_SECONDS)
        now = time.monotonic()
        try:
            for work, seconds in paces.items():
                if now - done[work] >= seconds:
                    done[work] = now
                    await work()
        except BusError as error:
            log.debug("tick: %s", error)
