"""Whether the event log has headroom for further jobs: the rest is reserved for living ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

from penstock.bus.protocol import Bus, BusError, Extent, StreamFull
from penstock.bus.streams import dispatch_limit
from penstock.events.subjects import Subjects

_MEASURED_SECONDS = 0.25
"""How long a measurement is used."""
_SHARE = 64
"""A client uses at most this part of the headroom before it measures anew, so that many clients
that measure the same headroom cannot fill the reserve for the ends of jobs together."""


class Headroom:
    """Measures how full the log is, seldom while it has much headroom.

    The broker refuses every message once the log holds ``max_bytes``. Ends of jobs must always be
    stored, so a dispatch is refused before, at :func:`penstock.bus.streams.dispatch_limit`, by the
    size in the settings: what the orchestrator adds to a full log is for carrying living jobs.

    Args:
        bus: a connected bus.
        subjects: names of streams and subjects.
    """

    def __init__(self, bus: Bus, subjects: Subjects) -> None:
        self._bus, self._stream = bus, subjects.events_stream
        self._measuring = asyncio.Lock()
        self._measured_at = float("-inf")
        self._extent: Extent | None = None
        self._under_way = 0  # bytes that were reserved and may not be stored yet
        self._uncounted = 0  # those of them that the last measurement may not include
        self._used = 0  # bytes that were reserved since

    async def check(self, size: int) -> None:
        """Raises StreamFull where a job of ``size`` bytes is not accepted."""
        async with self._measuring:
            if self._is_outdated():
                await self._measure()
            if size > self._left():
                raise self._full()

    async def reserve(self, sizes: Sequence[int]) -> int:
        """Reserves headroom for jobs; :meth:`release` follows when the broker has answered.

        Args:
            sizes: bytes of each job in the log, in order; at least one.

        Returns:
            How many of the first may be sent now, at least one.

        Raises:
            StreamFull: none.
        """
        async with self._measuring:
            if self._is_outdated() or self._left() >= sizes[0] > self._share() - self._used:
                await self._measure()
            left = self._left()
            if sizes[0] > left:
                raise self._full()
            count, size = 1, sizes[0]
            while count < len(sizes) and size + sizes[count] <= min(self._share(), left):
                size += sizes[count]
                count += 1
            self._used += size
            self._under_way += size
            return count

    def release(self, sizes: Sequence[int]) -> None:
        """The broker has answered for jobs of these sizes: it stored or refused them."""
        self._under_way -= sum(sizes)

    def _is_outdated(self) -> bool:
        return time.monotonic() - self._measured_at > _MEASURED_SECONDS

    async def _measure(self) -> None:
        under_way = self._under_way
        try:
            with suppress(BusError):  # then the dispatch itself reports it
                self._extent = await self._bus.extent(self._stream)
                self._uncounted, self._used = under_way, 0
        finally:  # callers that waited meanwhile must not each wait for an absent broker
            self._measured_at = time.monotonic()

    def _left(self) -> float:
        """Bytes that may still be dispatched."""
        if self._extent is None or not self._extent.configured_bytes:
            return float("inf")
        return dispatch_limit(self._extent.configured_bytes) - self._held()

    def _share(self) -> float:
        """Bytes that may be dispatched before the next measurement."""
        return (self._left() + self._used) / _SHARE

    def _held(self) -> int:
        return (self._extent.bytes if self._extent else 0) + self._uncounted + self._used

    def _full(self) -> StreamFull:
        limit = dispatch_limit(self._extent.configured_bytes) if self._extent else 0
        return StreamFull(
            f"the event log is full: it holds {self._held():,} bytes, jobs are accepted up to "
            f"{limit:,} (streams.events_max_bytes and half of the reserve). History is shortened "
            "by the orchestrator; see 'penstock health' for what holds it up, and raise "
            "streams.events_max_bytes if it is the jobs that wait"
        )
