"""Whether the event log has room for further jobs: what is left is for those that live."""

from __future__ import annotations

import time
from contextlib import suppress

from penstock.bus.protocol import Bus, BusError, Extent, StreamFull
from penstock.bus.streams import dispatch_limit
from penstock.events.subjects import Subjects

_KEPT_SECONDS = 0.25


class Room:
    """Asks the broker, at most a few times a second.

    The broker refuses everything once the log holds ``max_bytes``. Ends of jobs must always be
    stored, so a dispatch is refused before, at :func:`penstock.bus.streams.dispatch_limit`.
    """

    def __init__(self, bus: Bus, subjects: Subjects) -> None:
        self._bus, self._stream = bus, subjects.events_stream
        self._asked_at = float("-inf")
        self._extent: Extent | None = None
        self._sent = 0

    async def why_not(self, size: int) -> StreamFull | None:
        """Why no job can be dispatched now; None where it can.

        Args:
            size: bytes that are about to be dispatched; they count until the broker is asked again.
        """
        now = time.monotonic()
        if now - self._asked_at > _KEPT_SECONDS:
            self._asked_at = now
            with suppress(BusError):  # then the dispatch itself tells
                self._extent = await self._bus.extent(self._stream)
                self._sent = 0
        extent = self._extent
        if extent is None or not extent.max_bytes:
            return None
        limit, held = dispatch_limit(extent.max_bytes), extent.bytes + self._sent
        if held + size <= limit:
            self._sent += size
            return None
        return StreamFull(
            f"the event log is full: it holds {held:,} bytes, jobs are accepted up to "
            f"{limit:,}. History is shortened by the orchestrator; see 'penstock health' for what "
            "holds it up, and raise streams.events_max_bytes if it is the jobs that wait"
        )
