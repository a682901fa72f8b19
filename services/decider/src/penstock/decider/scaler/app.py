"""The scaler's process: follows decisions, and answers KEDA by gRPC."""

from __future__ import annotations

import logging
from typing import Any

from penstock.config import ConfigError, Settings
from penstock.config.extras import needed
from penstock.config.topology import pools
from penstock.events.subjects import Subjects
from penstock.runtime import service_process
from penstock.runtime.reloading import Reread
from penstock.runtime.service import Service

with needed("keda", "the service 'scaler'", "penstock-decider"):
    import grpc  # type: ignore[import-untyped]

    from penstock.decider.scaler import binding
    from penstock.decider.scaler.decisions import Decisions
    from penstock.decider.scaler.servicer import Servicer

log = logging.getLogger("penstock.scaler")

_ENDING_SECONDS = 1.0
_CALLS_BESIDE_STREAMS = 256
_OPTIONS = (
    ("grpc.max_receive_message_length", 64 * 1024),
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.so_reuseport", 0),  # a second scaler at this port is refused, not given half the calls
    # a caller that vanished leaves no stream behind for longer
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 5),
)


def run(settings: Settings, reread: Reread | None = None) -> None:
    """The whole process; raises ConfigError before anything starts."""
    binding.check(settings)
    service_process.run("scaler", settings, body, reread=reread, check=binding.check)


async def body(service: Service) -> None:
    """The service between its start and its end."""
    settings = service.settings
    decisions = Decisions(
        service.bus, Subjects(settings.prefix), pools(settings), settings.scaler.stale_seconds
    )
    server, port = listening(settings, Servicer(decisions, settings.scaler.max_streams))
    service.checks.require("decisions", decisions.why_not_ready)
    service.spawn(decisions.follow(), "decisions")
    try:
        await server.start()
        log.info("external scaler for KEDA: %s:%d", settings.scaler.address, port)
        await service.stopping.wait()
    finally:
        await server.stop(_ENDING_SECONDS)


def listening(settings: Settings, servicer: Servicer) -> tuple[Any, int]:
    """A server that is bound and not started, and its port. Raises ConfigError: it is taken."""
    scaler = settings.scaler
    server = grpc.aio.server(
        options=[*_OPTIONS, ("grpc.max_concurrent_streams", _most_calls(settings))],
        maximum_concurrent_rpcs=_most_calls(settings),
    )
    server.add_generic_rpc_handlers((servicer.handlers(),))
    host = f"[{scaler.address}]" if ":" in scaler.address else scaler.address
    place, secured = f"{host}:{scaler.port}", binding.credentials(scaler)
    try:
        if secured is None:
            return server, server.add_insecure_port(place)
        return server, server.add_secure_port(place, secured)
    except RuntimeError as error:
        raise ConfigError(
            f"the scaler cannot listen at {place}; set scaler.port to a free port, or 0 for any"
        ) from error


def _most_calls(settings: Settings) -> int:
    return settings.scaler.max_streams + _CALLS_BESIDE_STREAMS
