"""Posting spans to the collector. Imported only where there is one: the imports cost 0.4 s."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import requests
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

log = logging.getLogger(__name__)

EXPORT_SECONDS = 5
"""How long one batch is tried; runs beside the service, never in its way."""


class CollectorLost(Exception):
    """The collector cannot be reached and there is no time for another try."""


class CollectorExporter(SpanExporter):
    """OTLP over HTTP, logging when the collector goes away and when it is back, not each batch."""

    def __init__(self, endpoint: str) -> None:
        self._where = endpoint.rpartition("@")[2]  # without user and password
        self._session = _Session()
        self._exporter = trace_exporter.OTLPSpanExporter(
            endpoint=endpoint, timeout=EXPORT_SECONDS, session=self._session
        )
        self._lost = False
        logging.getLogger(trace_exporter.__name__).setLevel(logging.CRITICAL)  # we say it, once

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        if (lost := result is not SpanExportResult.SUCCESS) != self._lost:
            self._lost = lost
            if lost:
                log.warning("trace collector %s does not answer; spans are dropped", self._where)
            else:
                log.info("trace collector %s answers again", self._where)
        return result

    def hurry(self) -> None:
        """From here on each batch is tried once; a collector known to be away gets no more."""
        self._session.hurried = True
        if self._session.failing:
            self.shutdown()

    def shutdown(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]


class _Session(requests.Session):
    """Tells a hurried exporter not to wait for another try: it retries connection errors only."""

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
