"""Applies the current settings to streams that an earlier version or other settings made."""

from __future__ import annotations

import logging

from penstock.bus.access import NotPermitted
from penstock.bus.nats import NatsBus
from penstock.bus.protocol import BusRefused, BusUnavailable
from penstock.runtime.service import Service

log = logging.getLogger("penstock.orchestrator")

_RETRY_SECONDS = 2.0


async def keep(running: Service, bus: NatsBus) -> None:
    """Once the broker answers; settings change with a restart."""
    while True:
        try:
            for name, changes in (await bus.update_streams()).items():
                values = ", ".join(f"{key}={value}" for key, value in changes.items())
                # nats-server 2.15.1 reads it when it opens a stream's store (measured).
                later = ", from the broker's next restart on" if "compression" in changes else ""
                log.warning("stream %s: %s%s", name, values, later)
            return
        except NotPermitted:
            log.warning(
                "streams.compression = %s differs from what the broker has, and this key may not "
                "update streams; as the broker's administrator: nats stream edit %s --compression "
                "%s, the same for %s, then restart the broker",
                running.settings.streams.compression,
                bus.subjects.events_stream,
                running.settings.streams.compression,
                bus.subjects.snapshots_stream,
            )
            return
        except BusRefused as error:
            log.warning("the broker did not accept the settings of a stream: %s", error)
            return
        except BusUnavailable as error:
            log.warning("settings of streams wait: %s", error)
        if not await running.pause(_RETRY_SECONDS):
            return
