"""Restarts the broker of `penstock up` after its disk was full.

A stream of nats-server (2.15.1) that could not write once answers no publish any more, whatever
room there is later: neither a reload nor an update of the stream helps, only a start. What was
acknowledged is on the disk and is there after it.

One that removes old messages while its disk is full may lock itself out of the stream for good
(nats-server 2.15.1: `compactLocked`, `flushPendingMsgs`, `rebuildState`). Nothing of the stream is
answered then, nor is the server's health check: silence for long is taken for the same.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from penstock.health.survey import own_word
from penstock.runtime.broker import Broker

log = logging.getLogger("penstock.up")

CHECK_SECONDS = 2.0
LEAST_FREE_BYTES, LEAST_FREE_SHARE = 64_000_000, 0.1
"""A restart needs this much free space: the lesser of the two."""
_GRACE_SECONDS = 10.0
SILENT_SECONDS = 15.0
"""A health check without an answer for this long will not be answered."""


class DiskGuard:
    """Checks the broker's health and the disk below its store.

    Args:
        broker: of this `penstock up`.
        store: its folder.
        report: called with a sentence about each fault, and about the restart.
        silent_seconds: the broker is restarted when it gave no answer for this long.
    """

    def __init__(
        self,
        broker: Broker,
        store: Path,
        report: Callable[[str], None],
        silent_seconds: float = SILENT_SECONDS,
    ) -> None:
        self._broker, self._store, self._report = broker, store, report
        self._silent_seconds = silent_seconds
        self._silent_since: float | None = None
        self._is_reported = False

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self._check()
            except OSError as error:
                log.warning("cannot read the free space of the broker's disk: %s", error)

    async def _check(self) -> None:
        requested_at = time.monotonic()
        error = await asyncio.to_thread(own_word, self._broker.monitor_url)
        if error is None:
            error = self._silence(requested_at)
        else:
            self._silent_since = None
        if not error:
            self._is_reported = False
            return
        usage = shutil.disk_usage(self._store)
        free = f"free space {usage.free / 1e6:,.0f} MB"
        if usage.free < min(LEAST_FREE_BYTES, LEAST_FREE_SHARE * usage.total):
            if not self._is_reported:
                self._report(f"the broker does not store: {error}; {free}: make room")
            self._is_reported = True
            return
        self._report(f"the broker does not store: {error}; {free}: restarting it")
        self._silent_since = None
        child = self._broker.child
        if child is not None:  # its supervisor starts it again
            child.signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(_GRACE_SECONDS):
                    await child.ended()
            except TimeoutError:
                child.signal(signal.SIGKILL)

    def _silence(self, requested_at: float) -> str:
        """The fault of a broker that did not answer; empty while load may be the reason."""
        if self._silent_since is None:
            self._silent_since = requested_at
        silent = time.monotonic() - self._silent_since
        if silent < self._silent_seconds:
            return ""
        return f"its health check was not answered for {silent:.0f} s"
