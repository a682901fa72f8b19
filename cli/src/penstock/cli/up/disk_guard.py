"""Starts the broker of `penstock up` again after its disk was full.

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

LOOK_SECONDS = 2.0
LEAST_FREE_BYTES, LEAST_FREE_SHARE = 64_000_000, 0.1
"""Room that must be there before it is worth another start: the lesser of the two."""
_GRACE_SECONDS = 10.0
SILENT_SECONDS = 15.0
"""A health check that nobody answers for so long is not answered any more."""


class DiskGuard:
    """Looks at the broker's own health and at the disk below its store.

    Args:
        tell: hears a sentence about what is wrong and what is done.
        silent_seconds: after so long without an answer the broker is restarted.
    """

    def __init__(
        self,
        broker: Broker,
        store: Path,
        tell: Callable[[str], None],
        silent_seconds: float = SILENT_SECONDS,
    ) -> None:
        self._broker, self._store, self._tell = broker, store, tell
        self._silent_seconds = silent_seconds
        self._silent_since: float | None = None
        self._told = False

    async def run(self) -> None:
        """Without end."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._look()
            except OSError as error:
                log.warning("the broker's disk cannot be looked at: %s", error)

    async def _look(self) -> None:
        asked_at = time.monotonic()
        error = await asyncio.to_thread(own_word, self._broker.monitor_url)
        if error is None:
            error = self._silence(asked_at)
        else:
            self._silent_since = None
        if not error:
            self._told = False
            return
        usage = shutil.disk_usage(self._store)
        free = f"free space {usage.free / 1e6:,.0f} MB"
        if usage.free < min(LEAST_FREE_BYTES, LEAST_FREE_SHARE * usage.total):
            if not self._told:
                self._tell(f"the broker does not store: {error}; {free}: make room")
            self._told = True
            return
        self._tell(f"the broker does not store: {error}; {free}: restarting it")
        self._silent_since = None
        child = self._broker.child
        if child is not None:  # who keeps it starts it again
            child.signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(_GRACE_SECONDS):
                    await child.ended()
            except TimeoutError:
                child.signal(signal.SIGKILL)

    def _silence(self, asked_at: float) -> str:
        """What is wrong with a broker that did not answer; empty while that may be the load."""
        if self._silent_since is None:
            self._silent_since = asked_at
        silent = time.monotonic() - self._silent_since
        if silent < self._silent_seconds:
            return ""
        return f"its health check was not answered for {silent:.0f} s"
