"""Starts the broker of `penstock up` again after its disk was full.

A stream of nats-server (2.15.1) that could not write once answers no publish any more, whatever
room there is later: neither a reload nor an update of the stream helps, only a start. What was
acknowledged is on the disk and is there after it.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from penstock.health.survey import write_error
from penstock.runtime.broker import Broker

log = logging.getLogger("penstock.up")

LOOK_SECONDS = 2.0
LEAST_FREE_BYTES, LEAST_FREE_SHARE = 64_000_000, 0.1
"""Room that must be there before it is worth another start: the lesser of the two."""
_GRACE_SECONDS = 10.0


class DiskGuard:
    """Looks at the broker's own health and at the disk below its store.

    Args:
        tell: hears a sentence about what is wrong and what is done.
    """

    def __init__(self, broker: Broker, store: Path, tell: Callable[[str], None]) -> None:
        self._broker, self._store, self._tell = broker, store, tell
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
        error = await asyncio.to_thread(write_error, self._broker.monitor_url)
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
        child = self._broker.child
        if child is not None:  # who keeps it starts it again
            child.signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(_GRACE_SECONDS):
                    await child.ended()
            except TimeoutError:
                child.signal(signal.SIGKILL)
