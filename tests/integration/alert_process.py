"""A console's alerts as a process, for tests that kill it: its time is that of the events it reads.

``python -m tests.integration.alert_process JSON``: settings as a tree, a folder, and a file to
which the name of the console is written by which it holds the lease.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from penstock.bus.nats import NatsBus, connect
from penstock.bus.protocol import Stored
from penstock.config.load import check
from penstock.console.alerts import leader
from penstock.console.alerts.parts import Alerts
from penstock.events.catalogue import ALL
from penstock.events.envelope import Event
from penstock.runtime.service import Service

LEASE_SECONDS, LIMIT_SECONDS = 1.5, 8.0


class PlayedBus:
    """A connection whose clock is the newest event of the streams that rules look at."""

    def __init__(self, bus: NatsBus, streams: Sequence[str]) -> None:
        self._bus, self._streams, self._now = bus, streams, 0.0

    def now(self) -> float:
        return self._now

    async def follow(
        self, stream: str, subjects: Sequence[str], start: str | int = "new", **more: int
    ) -> AsyncIterator[Stored]:
        async for stored in self._bus.follow(stream, subjects, start, **more):
            if stream in self._streams:
                event = ALL.decode(stored.body)
                if isinstance(event, Event):
                    self._now = max(self._now, event.at.timestamp())
            yield stored

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)


async def main(order: dict[str, Any], holder: Path) -> None:
    settings = check(order["settings"])
    real = await connect(settings)
    names = real.subjects
    bus: Any = PlayedBus(real, (names.events_stream, names.snapshots_stream))
    service = Service("console", settings, bus)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, service.stopping.set)
    alerts = Alerts(bus, settings, Path(order["folder"]), lambda: None)
    leader.STEP_SECONDS = leader.GATHER_SECONDS = 0.02
    alerts.leader._lease._lease_seconds = LEASE_SECONDS
    alerts.senders._limit_seconds = LIMIT_SECONDS
    await asyncio.to_thread(holder.write_text, alerts.leader._lease.holder)
    service.spawn(alerts.run(service), "alerts")
    await service.stopping.wait()
    await alerts.leader.finish()
    await service.end_tasks()
    await real.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    order = json.loads(sys.argv[1])
    asyncio.run(main(order, Path(order["holder"])))
