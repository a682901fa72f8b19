"""Log lines posted to the collector, each with the trace in which it was written."""

from __future__ import annotations

import logging

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context, get_current
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import (
    INVALID_SPAN_ID,
    NonRecordingSpan,
    SpanContext,
    set_span_in_context,
)

from penstock.telemetry import names
from penstock.telemetry.job_lines import STREAM, failure_of, of_job
from penstock.telemetry.otlp.posting import FLUSH_MILLISECONDS, LogPost
from penstock.telemetry.spans import trace_id

QUEUE_LINES = 2048
"""Lines that wait for the collector at most; more than that are dropped."""
MOST_CHARACTERS = 16_000
_ATTRIBUTES = {
    "job_id": names.JOB,
    "attempt": names.ATTEMPT,
    "function": names.FUNCTION,
    "worker": names.WORKER,
    "error_type": names.ERROR_TYPE,
    "traceback": "exception.stacktrace",
}
_NOT_OURS = ("opentelemetry", "urllib3", "requests")
"""Posting the log lines of posting itself would never end."""


class CollectorLines(logging.Handler):
    """Beside the lines on standard error, from the same level upwards."""

    def __init__(self, post: LogPost, resource: Resource) -> None:
        super().__init__()
        self._provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_log_record_processor(
            BatchLogRecordProcessor(
                post, max_queue_size=QUEUE_LINES, schedule_delay_millis=FLUSH_MILLISECONDS
            )
        )
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.partition(".")[0] in _NOT_OURS:
            return
        job = of_job(record)
        failure = failure_of(record, lambda: self._traceback(record))
        attributes = {
            _ATTRIBUTES[name]: value
            for name, value in (job | failure).items()
            if name in _ATTRIBUTES
        }
        if stream := getattr(record, STREAM, ""):
            attributes["log.iostream"] = stream
        self._provider.get_logger(record.name).emit(
            LogRecord(
                timestamp=int(record.created * 1e9),
                context=_context(str(job.get("trace_id", ""))),
                severity_text=record.levelname,
                severity_number=_severity(record.levelno),
                body=record.getMessage()[:MOST_CHARACTERS],
                attributes=attributes,
            )
        )

    def _traceback(self, record: logging.LogRecord) -> str:
        if not record.exc_info:
            return ""
        return self._formatter.formatException(record.exc_info)[-MOST_CHARACTERS:]

    def shutdown(self) -> None:
        """Posts the remaining lines; waits for the collector without a limit."""
        self._provider.shutdown()


def _severity(level: int) -> SeverityNumber:
    """DEBUG (10) is 5, INFO 9, WARNING 13, ERROR 17, CRITICAL 21."""
    return SeverityNumber(min(max(level // 10 * 4 + 1, 1), 21))


def _context(trace: str) -> Context:
    """The trace that a line belongs to: of the span it was written in, else of its job."""
    if trace_id():
        return get_current()
    if not trace:
        return Context()
    of_job_alone = SpanContext(int(trace, 16), INVALID_SPAN_ID, is_remote=True)
    return set_span_in_context(NonRecordingSpan(of_job_alone), Context())
