"""Queues are paused, or not, as recorded: also where the client that changed it died in between."""

from __future__ import annotations

import logging

from penstock.bus.protocol import BusError
from penstock.events.subjects import Subjects
from penstock.jobs.queues.pauses import QueuePauses
from penstock.runtime.service import Service

log = logging.getLogger("penstock.orchestrator")

_ROUND_SECONDS = 2.0


async def keep(running: Service) -> None:
    """Looks again and again until the service ends."""
    pausing = QueuePauses(running.bus, Subjects(running.settings.prefix), running.source)
    while await running.pause(_ROUND_SECONDS):
        try:
            await pausing.agree((await running.bus.depths()).values())
        except BusError as error:
            log.debug("pauses: %s", error)
