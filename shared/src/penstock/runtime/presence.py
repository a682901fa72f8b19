"""How a service can be observed: pages over HTTP, checks, and what is sent to a collector."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from itertools import cycle
from typing import TYPE_CHECKING

from penstock import telemetry
from penstock.bus.protocol import BusError
from penstock.runtime.service import Service
from penstock.telemetry import metrics
from penstock.telemetry.checks import BEAT_SECONDS
from penstock.telemetry.meters import Reading
from penstock.telemetry.pages import Pages, routes

if TYPE_CHECKING:
    from penstock.bus.nats import NatsBus

log = logging.getLogger("penstock")

BROKER_CHECK_SECONDS = 2.0


@asynccontextmanager
async def shown(service: Service) -> AsyncIterator[None]:
    """The service can be observed while the block runs."""
    from penstock.bus.nats import NatsBus  # noqa: PLC0415 - keeps the in-memory bus free of NATS

    _introduce(service)
    service.checks.require("running", lambda: "it is stopping" if service.stopping.is_set() else "")
    service.spawn(_beat(service), "beat")
    if isinstance(service.bus, NatsBus):
        service.spawn(_check_broker(service, service.bus), "broker check")
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
        return version("penstock-client")
    except PackageNotFoundError:
        return "unknown"


def _open(service: Service) -> Pages | None:
    address = service.settings.http.address
    port = getattr(service.settings.http, f"{service.name}_port", 0)
    if not address:
        return None
    try:
        path = service.settings.http.metrics_path
        pages = Pages(address, port, routes(service.checks, service.meters, path))
    except OSError as error:
        log.warning(
            "cannot bind the health and metrics endpoint %s:%d (%s): the service runs without; set "
            "http.%s_port to a free port, or http.address to '' for no endpoint",
            address,
            port,
            error.strerror or error,
            service.name,
        )
        return None
    log.info("%s: health and metrics at http://%s:%d", service.name, address, pages.port)
    return pages


async def _beat(service: Service) -> None:
    while True:
        service.checks.beat()
        await asyncio.sleep(BEAT_SECONDS)


async def _check_broker(service: Service, bus: NatsBus) -> None:
    """Looks again and again whether the broker answers and the streams exist.

    One stream a look, in turn, once all were there: ten requests in each service were a quarter of
    what an idle installation computes.
    """
    problems = {"broker": "not asked yet", "streams": "not asked yet"}
    service.checks.require("broker", lambda: problems["broker"])
    service.checks.require("streams", lambda: problems["streams"])
    missing: list[str] | None = None
    turns = cycle(bus.stream_names())
    while True:
        try:
            missing = await bus.missing_streams([next(turns)] if missing == [] else None)
            lacks = f"missing: {', '.join(missing)}; services make them when they start"
            problems |= {"broker": "", "streams": lacks if missing else ""}
        except BusError as error:
            missing, unknown = None, "unknown while the broker does not answer"
            problems |= {"broker": str(error), "streams": unknown}
        # Also while the service stops: that may take as long as a job.
        await asyncio.sleep(BROKER_CHECK_SECONDS)
