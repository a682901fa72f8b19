"""How a service shows itself to those who watch: pages, checks, and what is sent to a collector."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from penstock import telemetry
from penstock.bus.protocol import BusError
from penstock.telemetry import metrics
from penstock.telemetry.checks import BEAT_SECONDS
from penstock.telemetry.meters import Reading
from penstock.telemetry.pages import Pages, routes

if TYPE_CHECKING:
    from penstock.bus.nats import NatsBus
    from penstock.runtime.service import Service

log = logging.getLogger("penstock")

ASK_SECONDS = 2.0
"""How often the broker is asked whether it is there."""


@asynccontextmanager
async def shown(service: Service) -> AsyncIterator[None]:
    """The service can be looked at while the block runs."""
    from penstock.bus.nats import NatsBus  # noqa: PLC0415 - keeps the in-memory bus free of NATS

    _introduce(service)
    service.checks.require("running", lambda: "it ends" if service.stopping.is_set() else "")
    service.spawn(_beat(service), "beat")
    if isinstance(service.bus, NatsBus):
        service.spawn(_ask(service, service.bus), "broker check")
    name = f"penstock-{service.name}"
    end = telemetry.setup(name, service.source, service.settings, service.meters)
    pages = _open(service)
    try:
        yield
    finally:
        if pages:
            await asyncio.to_thread(pages.close)
        await asyncio.to_thread(end)


def _introduce(service: Service) -> None:
    about = Reading(metrics.SERVICE_INFO, 1, (service.name, _version()))
    service.meters.read(lambda: [about, *service.checks.readings()])


def _version() -> str:
    try:
        return version("penstock-shared")
    except PackageNotFoundError:
        return "unknown"


def _open(service: Service) -> Pages | None:
    address = service.settings.http.address
    port = getattr(service.settings.http, f"{service.name}_port", 0)
    if not address:
        return None
    try:
        pages = Pages(address, port, routes(service.checks, service.meters))
    except OSError as error:
        log.warning(
            "no pages for those who watch: %s:%d cannot be had (%s); set http.%s_port to a free "
            "one, or http.address to '' to do without",
            address,
            port,
            error.strerror or error,
            service.name,
        )
        return None
    log.info("health and metrics at http://%s:%d", address, pages.port)
    return pages


async def _beat(service: Service) -> None:
    while True:
        service.checks.beat()
        await asyncio.sleep(BEAT_SECONDS)


async def _ask(service: Service, bus: NatsBus) -> None:
    """Looks whether the broker answers and the streams are there, all the time."""
    found = {"broker": "not asked yet", "streams": "not asked yet"}
    service.checks.require("broker", lambda: found["broker"])
    service.checks.require("streams", lambda: found["streams"])
    while True:
        try:
            missing = await bus.missing_streams()
            lacks = f"missing: {', '.join(missing)}; services make them when they start"
            found |= {"broker": "", "streams": lacks if missing else ""}
        except BusError as error:
            found |= {"broker": str(error), "streams": "unknown while the broker does not answer"}
        await asyncio.sleep(ASK_SECONDS)  # also while it ends: that may take as long as a job
