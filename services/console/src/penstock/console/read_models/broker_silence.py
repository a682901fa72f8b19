"""Whether the broker answers: a connection may stand for minutes over a broker that hangs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from penstock.bus.protocol import BusError, BusUnavailable

SILENT_SECONDS = 2.5
"""A question that is open for so long counts as not answered."""


class BrokerSilence:
    """Since when the broker has not answered.

    Args:
        now: POSIX seconds.
        monotonic: seconds of a clock that is never set.
    """

    def __init__(
        self, now: Callable[[], float], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._now, self._monotonic = now, monotonic
        self._open_since: float | None = None
        self._answered_at = 0.0

    @contextmanager
    def question(self) -> Iterator[None]:
        """Around one request. A refusal is an answer; errors of the broker end here."""
        if self._open_since is None:
            self._open_since = self._monotonic()
            self._answered_at = self._answered_at or self._now()
        try:
            yield
        except BusUnavailable:
            return
        except BusError:
            pass
        self._open_since, self._answered_at = None, self._now()

    @property
    def since(self) -> datetime | None:
        """When it answered last, where it does no more; None while it answers."""
        if self._open_since is None or self._monotonic() - self._open_since < SILENT_SECONDS:
            return None
        return datetime.fromtimestamp(self._answered_at, UTC)
