"""Time as the broker counts it: ages can be told where machines' clocks differ, or are set."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime


class BrokerClock:
    """The local monotonic clock, shifted to what the broker's time stamps prove.

    Args:
        wall: POSIX seconds of this machine, a first guess. monotonic: seconds that never jump.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.monotonic = monotonic
        self._offset = wall() - monotonic()

    def now(self) -> float:
        """POSIX seconds, broker's clock, in whole microseconds: as events can say it again."""
        return datetime.fromtimestamp(self.monotonic() + self._offset, UTC).timestamp()

    def learn(self, stored_at: float, sent_at: float, answered_at: float) -> None:
        """The broker stored something between two moments of ``monotonic``: it must fit."""
        least, most = stored_at - answered_at, stored_at - sent_at
        if not least <= self._offset <= most:
            self._offset = (least + most) / 2
