"""Time by the broker's clock, so that ages are right where the clocks of machines differ."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

from penstock.bus.protocol import BusError

_AGAIN_SECONDS = 30.0


class BrokerClock:
    """The local monotonic clock, shifted by the broker's time stamps.

    Args:
        wall: POSIX seconds of this machine, a first guess.
        monotonic: seconds that never jump.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.monotonic = monotonic
        self._offset = wall() - monotonic()

    def now(self) -> float:
        """POSIX seconds, broker's clock, in whole microseconds, as events store it."""
        return round((self.monotonic() + self._offset) * 1e6) / 1e6

    def read(self, answer: dict[str, Any], sent_at: float, answered_at: float) -> None:
        """Learns from an answer of the JetStream API: some carry the server's time as ``ts``."""
        with suppress(KeyError, TypeError, ValueError):
            at = datetime.fromisoformat(answer["ts"]).timestamp()
            self.learn(at, sent_at, answered_at)

    def learn(self, stored_at: float, sent_at: float, answered_at: float) -> None:
        """Adapts to a message that the broker stored between two moments of ``monotonic``."""
        least, most = stored_at - answered_at, stored_at - sent_at
        if not least <= self._offset <= most:
            self._offset = (least + most) / 2


async def keep(ask: Callable[[], Awaitable[object]]) -> None:
    """Sends a request whose answer carries the time, each half minute, without end."""
    while True:
        await asyncio.sleep(_AGAIN_SECONDS)
        with suppress(BusError):  # the clock goes on by itself
            await ask()
