"""Sending spans to a collector, by OTLP over HTTP, never in anybody's way."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from opentelemetry import trace

from penstock.config import Settings
from penstock.telemetry import spans

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

Shutdown = Callable[[], None]

QUEUE_SPANS = 8192
"""Spans that wait for the collector at most; more than that are dropped, oldest first."""
FLUSH_MILLISECONDS = 1000
SHUTDOWN_SECONDS = 2.0
_PATH = "/v1/traces"


def setup(service_name: str, instance: str, settings: Settings) -> Shutdown:
    """Starts tracing if an endpoint is configured; call it after forking.

    Args:
        service_name: e.g. ``penstock-decider``.
        instance: unique among the processes of that service.

    Returns:
        What to call at the end: sends what is left, waits at most ``SHUTDOWN_SECONDS``.
    """
    endpoint = endpoint_of(settings, os.environ)
    if endpoint is None:
        return _nothing
    provider, hurry = _provider(service_name, instance, endpoint, settings.telemetry.sample_share)
    spans.use(provider.get_tracer("penstock"))
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(provider)  # so that a job's own instrumentation joins its story
    return lambda: _end(provider, hurry)


def preload(settings: Settings) -> None:
    """Does the imports of :func:`setup` (0.4 s) before a fork, if they will be needed."""
    if endpoint_of(settings, os.environ) is not None:
        import penstock.telemetry.posting  # noqa: F401, PLC0415


def endpoint_of(settings: Settings, environment: Mapping[str, str]) -> str | None:
    """Where spans are posted to; None turns tracing off."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    base = settings.telemetry.endpoint
    if not base and (full := environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")):
        return full
    base = (base or environment.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")).rstrip("/")
    if not base:
        return None
    return base if base.endswith(_PATH) else base + _PATH


def _nothing() -> None:
    pass


def _provider(
    service_name: str, instance: str, endpoint: str, share: float
) -> tuple[TracerProvider, Callable[[], None]]:
    # imported here: a process without an endpoint does not pay for the SDK
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio  # noqa: PLC0415

    from penstock.telemetry.posting import CollectorExporter  # noqa: PLC0415

    about: dict[str, str | int] = {
        "service.name": service_name,
        "service.namespace": "penstock",
        "service.instance.id": instance,
        "host.name": socket.gethostname(),
        "process.pid": os.getpid(),
    }
    provider = TracerProvider(
        sampler=ParentBasedTraceIdRatio(share),
        resource=Resource.create({**about}),
        shutdown_on_exit=False,  # its wait is unbounded, ours is not
    )
    exporter = CollectorExporter(endpoint)
    processor = BatchSpanProcessor(
        exporter, max_queue_size=QUEUE_SPANS, schedule_delay_millis=FLUSH_MILLISECONDS
    )
    provider.add_span_processor(processor)
    return provider, exporter.hurry


def _end(provider: TracerProvider, hurry: Callable[[], None]) -> None:
    """Flushes in a thread of its own: a collector that hangs does not keep the process."""
    spans.use(None)
    hurry()
    flush = threading.Thread(target=provider.shutdown, name="telemetry-flush", daemon=True)
    flush.start()
    flush.join(SHUTDOWN_SECONDS)
