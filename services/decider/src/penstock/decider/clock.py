"""Wall-clock time as the broker counts it: ages can be told where the machines' clocks differ."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime


class BrokerClock:
    """The local clock, corrected by what the broker's time stamps prove.

    Args:
        wall: POSIX seconds of this machine.
    """

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self.wall = wall
        self._offset = 0.0

    def now(self) -> float:
        """POSIX seconds, broker's clock, in whole microseconds: as events can say it again."""
        return datetime.fromtimestamp(self.wall() + self._offset, UTC).timestamp()

    def learn(self, stored_at: float, sent_at: float, answered_at: float) -> None:
        """The broker stored something between two local moments: the offset must fit."""
        least, most = stored_at - answered_at, stored_at - sent_at
        if not least <= self._offset <= most:
            self._offset = (least + most) / 2
