"""Sends spans, metrics and log lines to a collector by OTLP over HTTP, from threads of its own."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from opentelemetry import trace

from penstock.config import Settings
from penstock.config.extras import needed
from penstock.config.settings import Telemetry
from penstock.telemetry import propagation, spans
from penstock.telemetry.meters import Meters

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

    from penstock.telemetry.plain_spans import PlainSpan

Shutdown = Callable[[], None]
_Sender = tuple[Callable[[], None], Callable[[], None]]
"""Functions that hurry a sender, and that end it."""

QUEUE_SPANS = 8192
"""Spans that wait for the collector at most; more than that are dropped, oldest first."""
SHUTDOWN_SECONDS = 2.0
SIGNALS = ("traces", "metrics", "logs")


def setup(
    service_name: str, instance: str, settings: Settings, meters: Meters | None = None
) -> Shutdown:
    """Starts sending whatever has an endpoint; call it after forking.

    Args:
        service_name: e.g. ``penstock-decider``.
        instance: unique among the processes of that service.
        settings: of telemetry; the usual ``OTEL_…`` variables hold as well.
        meters: its metrics; None sends none.

    Returns:
        The function to call at the end: sends the rest, waits at most ``SHUTDOWN_SECONDS``.

    Raises:
        ExtraMissing: the libraries for OTLP, or of one of ``telemetry.propagators``, are not
            installed.
    """
    propagation.use(settings.telemetry.propagators)
    service_name = f"{settings.telemetry.service_name}{service_name.removeprefix('penstock')}"
    endpoints = {
        name: endpoint_of(settings, os.environ, name) for name in settings.telemetry.signals
    }
    if any(endpoints.values()):
        with needed("telemetry", "sending to the collector of telemetry.endpoint (or OTEL_…)"):
            import penstock.telemetry.otlp.posting  # noqa: F401, PLC0415
    senders: list[_Sender] = []
    if endpoint := endpoints.get("traces"):
        resource = _resource(service_name, instance)
        senders.append(_spans(resource, endpoint, settings.telemetry))
    if endpoint := endpoints.get("logs"):
        senders.append(_logs(_resource(service_name, instance), endpoint))
    if meters and (endpoint := endpoints.get("metrics")):
        every = settings.telemetry.metrics_seconds
        senders.append(_metrics(_resource(service_name, instance), endpoint, meters, every))
    return lambda: _end(senders)


def preload(settings: Settings) -> None:
    """Does the imports of :func:`setup` (0.4 s) before a fork, if they will be needed."""
    if any(endpoint_of(settings, os.environ, name) for name in settings.telemetry.signals):
        import penstock.telemetry.otlp.logs  # noqa: F401, PLC0415


def endpoint_of(
    settings: Settings, environment: Mapping[str, str], signal: str = "traces"
) -> str | None:
    """The URL that one of `SIGNALS` is posted to; None if it is not sent."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    base = settings.telemetry.endpoint
    own = environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    if not base and own:
        return own
    base = (base or environment.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")).rstrip("/")
    if not base:
        return None
    for name in SIGNALS:
        base = base.removesuffix(f"/v1/{name}")
    return f"{base}/v1/{signal}"


# imported in each: a process without an endpoint does not pay for the SDK
def _resource(service_name: str, instance: str) -> Resource:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    about: dict[str, str | int] = {
        "service.name": service_name,
        "service.namespace": "penstock",
        "service.instance.id": instance,
        "host.name": socket.gethostname(),
        "process.pid": os.getpid(),
    }
    return Resource.create({**about})


def _spans(resource: Resource, endpoint: str, settings: Telemetry) -> _Sender:
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio  # noqa: PLC0415

    from penstock.telemetry.otlp import wire  # noqa: PLC0415
    from penstock.telemetry.otlp.posting import FLUSH_MILLISECONDS, SpanPost  # noqa: PLC0415

    sampler, ids = ParentBasedTraceIdRatio(settings.sample_share), wire.Ids()
    provider = TracerProvider(
        sampler=sampler,
        id_generator=ids,
        resource=resource,
        shutdown_on_exit=False,  # its wait is unbounded, ours is not
    )
    exporter = SpanPost(endpoint, resource)
    processor = BatchSpanProcessor(
        exporter, max_queue_size=QUEUE_SPANS, schedule_delay_millis=FLUSH_MILLISECONDS
    )
    provider.add_span_processor(processor)
    tracer = provider.get_tracer(wire.SCOPE)
    # it looks at the context only, and hands on what it gets
    ended = cast("Callable[[PlainSpan], None]", processor.on_end)
    plainly = wire.maker(tracer, sampler, ids, ended) if exporter.takes_plain else None
    spans.use(tracer, settings.jobs_per_second, plainly)
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(provider)  # so that a job's own instrumentation joins its trace
    return exporter.post.hurry, provider.shutdown


def _logs(resource: Resource, endpoint: str) -> _Sender:
    from penstock.telemetry.otlp.logs import CollectorLines  # noqa: PLC0415
    from penstock.telemetry.otlp.posting import LogPost  # noqa: PLC0415

    post = LogPost(endpoint)
    lines = CollectorLines(post, resource)
    logging.getLogger().addHandler(lines)

    def hurry() -> None:
        logging.getLogger().removeHandler(lines)
        post.post.hurry()

    return hurry, lines.shutdown


def _metrics(resource: Resource, endpoint: str, meters: Meters, every_seconds: float) -> _Sender:
    from penstock.telemetry.otlp.metric_posts import MetricPosts  # noqa: PLC0415
    from penstock.telemetry.otlp.posting import MetricPost  # noqa: PLC0415

    post = MetricPost(endpoint)
    return post.post.hurry, MetricPosts(post, resource, meters, every_seconds).shutdown


def _end(senders: list[_Sender]) -> None:
    """Flushes in threads of its own: a collector that hangs does not keep the process."""
    spans.use(None)
    flushes = []
    for hurry, shutdown in senders:
        hurry()
        flushes.append(threading.Thread(target=shutdown, name="telemetry-flush", daemon=True))
        flushes[-1].start()
    deadline = time.monotonic() + SHUTDOWN_SECONDS
    for flush in flushes:
        flush.join(max(deadline - time.monotonic(), 0.0))
