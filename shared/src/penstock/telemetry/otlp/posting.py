"""Posting to the collector with the library's exporters.

They are wrapped because they log each failed batch, and retry beyond a service's end; and to send
plain spans and the SDK's in one request (docs/decisions/0015).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import requests
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http import _log_exporter, metric_exporter, trace_exporter
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from penstock.telemetry.otlp import wire
from penstock.telemetry.plain_spans import PlainSpan

log = logging.getLogger(__name__)

EXPORT_SECONDS = 5
"""Seconds in which one batch is tried, in a thread of its own."""
FLUSH_MILLISECONDS = 1000
"""Between two batches of spans, or of log lines."""

for _module in (trace_exporter, metric_exporter, _log_exporter):
    logging.getLogger(_module.__name__).setLevel(
        logging.CRITICAL
    )  # `Post` logs the first failure only


class CollectorLost(Exception):
    """The collector cannot be reached and there is no time for another try."""


class Post:
    """OTLP over HTTP, logging when the collector goes away and when it is back, not each batch.

    Args:
        what: ``spans``, ``logs`` or ``metrics``.
        endpoint: URL of the collector.
        make: the library's exporter.
    """

    def __init__(self, what: str, endpoint: str, make: Callable[..., Any]) -> None:
        self._what = what
        self._where = endpoint.rpartition("@")[2]  # without user and password
        self._session = _Session()
        self._exporter = make(endpoint=endpoint, timeout=EXPORT_SECONDS, session=self._session)
        self._lost = False

    def send(self, batch: Any) -> bool:
        """Whether it arrived."""
        lost: bool = self._exporter.export(batch).name != "SUCCESS"
        # once each way, not for each batch: a collector may be away for hours
        if lost != self._lost:
            self._lost = lost
            if lost:
                log.warning(
                    "collector %s does not respond; %s are dropped", self._where, self._what
                )
            else:
                log.info("collector %s responds again", self._where)
        return not lost

    def hurry(self) -> None:
        """From here on each batch is tried once; a collector known to be away gets no more."""
        self._session.hurried = True
        if self._session.failing:
            self.shutdown()

    def shutdown(self) -> None:
        self._exporter.shutdown()


class SpanPost(SpanExporter):
    """Spans, for the library's batches."""

    def __init__(self, endpoint: str, resource: Resource) -> None:
        self.post = Post("spans", endpoint, partial(_PlainExporter, wire.process_head(resource)))
        # ``_client`` is not public; newer versions may lack it, then the SDK makes all spans
        self.takes_plain = hasattr(self.post._exporter, "_client")

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS if self.post.send(spans) else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self.post.shutdown()


class _PlainExporter(trace_exporter.OTLPSpanExporter):
    """The library's, with its retries and settings; plain spans are encoded our way."""

    def __init__(self, head: ResourceSpans, **options: Any) -> None:
        super().__init__(**options)
        self._head = head

    def export(self, spans: Sequence[ReadableSpan | PlainSpan]) -> SpanExportResult:
        plain = [span for span in spans if isinstance(span, PlainSpan)]
        others = [span for span in spans if not isinstance(span, PlainSpan)]
        if not plain or self._shutdown:
            return super().export(others)
        body = wire.encode(plain, self._head) + encode_spans(others).SerializeToString()
        sent = self._client.export(body).success
        return SpanExportResult.SUCCESS if sent else SpanExportResult.FAILURE


class LogPost(LogRecordExporter):
    """Log records, for the library's batches."""

    def __init__(self, endpoint: str) -> None:
        self.post = Post("logs", endpoint, _log_exporter.OTLPLogExporter)

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        sent = self.post.send(batch)
        return LogRecordExportResult.SUCCESS if sent else LogRecordExportResult.FAILURE

    def shutdown(self) -> None:
        self.post.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return True


class MetricPost:
    """Metrics, as they are now."""

    def __init__(self, endpoint: str) -> None:
        self.post = Post("metrics", endpoint, metric_exporter.OTLPMetricExporter)

    def export(self, batch: MetricsData) -> bool:
        return self.post.send(batch)


class _Session(requests.Session):
    """Stops a hurried exporter from waiting for another try: it retries connection errors only."""

    hurried = False
    failing = False

    def request(self, *arguments: Any, **options: Any) -> requests.Response:
        try:
            answer = super().request(*arguments, **options)
        except requests.RequestException as error:
            self.failing = True
            if self.hurried:
                raise CollectorLost(str(error)) from error
            raise
        self.failing = False
        return answer
