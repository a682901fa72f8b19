"""A sign of life to an address outside: what watches it raises the alarm when all of this is down.

The leading console sends it after a step of the rules, so it says that the broker answers and that
alerts are judged; it stops when no console leads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from penstock.console.alerts.webhook import SendFailed, post

log = logging.getLogger("penstock.console.alerts")

LIMIT_SECONDS = 10.0


class LastBeat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of the heartbeat lately.

    Attributes:
        accepted_at: POSIX seconds of the last one that was taken; 0 before the first.
        failed_at: POSIX seconds of the last one that was not; 0 for none since.
        error: why it was not.
    """

    accepted_at: float = 0.0
    failed_at: float = 0.0
    error: str = ""


class Heartbeat:
    """Posts to an address at intervals.

    Args:
        url: of a service that expects it; empty for none.
        every_seconds: from one to the next.
        allowed: private networks that may be reached.

    Attributes:
        last: what came of it.
    """

    def __init__(self, url: str, every_seconds: float, allowed: Sequence[str] = ()) -> None:
        self._url, self._every_seconds, self._allowed = url, every_seconds, tuple(allowed)
        self._sending: asyncio.Task[None] | None = None
        self._begun_at = 0.0
        self.last = LastBeat()

    @property
    def host(self) -> str:
        """Where it goes, without the path, which is a secret of most services; empty for none."""
        return urlsplit(self._url).hostname or ""

    @property
    def every_seconds(self) -> float:
        """From one to the next."""
        return self._every_seconds

    def resume(self, last: LastBeat) -> None:
        """Goes on from what an earlier leader stored."""
        self.last, self._begun_at = last, max(last.accepted_at, last.failed_at)

    def beat(self, now: float) -> None:
        """Sends one where it is time; called after each step.

        Args:
            now: POSIX seconds.
        """
        is_under_way = self._sending is not None and not self._sending.done()
        if self._url and not is_under_way and now >= self._begun_at + self._every_seconds:
            self._begun_at = now
            self._sending = asyncio.create_task(self._send(now))

    def stop(self) -> None:
        """Sends no more: another console leads."""
        if self._sending is not None:
            self._sending.cancel()

    async def _send(self, now: float) -> None:
        body = msgspec.json.encode({"version": 1, "heartbeat": "penstock alerts"})
        name = f"heartbeat-{round(now * 1000)}"
        try:
            await post(self._url, body, "", name, int(now), self._allowed, LIMIT_SECONDS)
        except SendFailed as error:
            if not self.last.error:
                log.warning("the heartbeat is not taken by %s: %s", self.host, error)
            accepted_at = self.last.accepted_at
            self.last = LastBeat(accepted_at=accepted_at, failed_at=now, error=str(error))
        else:
            self.last = LastBeat(accepted_at=now)
