"""Keeps what the broker has as it should be: settings of streams, pauses of queues, records."""

from __future__ import annotations

import logging

from penstock.bus.access import NotPermitted
from penstock.bus.nats import NatsBus
from penstock.bus.protocol import BusError, BusRefused, BusUnavailable
from penstock.events.subjects import Subjects
from penstock.jobs.queues.pauses import QueuePauses
from penstock.operations import settings_in_force
from penstock.runtime.service import Service

log = logging.getLogger("penstock.orchestrator")

_RETRY_SECONDS = 2.0
_PAUSES_SECONDS = 2.0
_FORGET_SECONDS = 3600.0


async def apply_stream_settings(running: Service, bus: NatsBus) -> None:
    """Applies the settings to streams that an earlier version or other settings made.

    Once, when the broker answers; with other settings the orchestrator starts anew.
    """
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
            log.warning("stream settings wait for the broker: %s", error)
        if not await running.pause(_RETRY_SECONDS):
            return


async def keep_pauses(running: Service) -> None:
    """Pauses queues, or resumes them, as recorded: also where the client that did so died early."""
    pausing = QueuePauses(running.bus, Subjects(running.settings.prefix), running.source)
    while await running.pause(_PAUSES_SECONDS):
        try:
            await pausing.agree((await running.bus.depths()).values())
        except BusError as error:
            log.debug("pauses: %s", error)


async def forget_ended_services(running: Service) -> None:
    """Removes the settings of processes that ended long ago."""
    while await running.pause(_FORGET_SECONDS):
        try:
            await settings_in_force.forget_ended(running.bus, Subjects(running.settings.prefix))
        except BusError as error:
            log.debug("settings of ended services: %s", error)
