"""The spans ``spawn <pool>``: from a command's arrival to a worker that is ready."""

from __future__ import annotations

from collections.abc import Mapping

from penstock import telemetry
from penstock.telemetry import Span, SpanKind, names


class SpawnSpans:
    """One open span for each worker that is starting."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._open: dict[str, Span] = {}

    def begin(
        self, worker: str, pool: str, parent: Mapping[str, str], commanded_at: float
    ) -> dict[str, str]:
        """Headers with which the worker goes on with the trace.

        Args:
            parent: headers of the command that asked for it; none for a respawn: a new trace.
            commanded_at: POSIX seconds.
        """
        if not telemetry.enabled():
            return {}
        span = telemetry.start(
            names.spawn(pool),
            parent=parent,
            kind=SpanKind.CONSUMER,
            links=telemetry.links(parent),
            started_at=commanded_at,
            attributes={
                names.MESSAGING_SYSTEM: names.NATS,
                names.MESSAGING_OPERATION_NAME: "spawn",
                names.MESSAGING_OPERATION_TYPE: names.PROCESS,
                names.MESSAGING_DESTINATION: self._host,
                names.HOST: self._host,
                names.POOL: pool,
                names.WORKER: worker,
            },
        )
        self._open[worker] = span
        return telemetry.inject(span=span)

    def headers(self, worker: str) -> dict[str, str]:
        """Of the trace of a worker that is starting; none for another."""
        span = self._open.get(worker)
        return telemetry.inject(span=span) if span else {}

    def ready(self, worker: str, spawn_seconds: float | None) -> None:
        span = self._open.pop(worker, None)
        if span:
            if spawn_seconds is not None:
                span.set_attribute(names.SPAWN_SECONDS, spawn_seconds)
            span.end()

    def failed(self, worker: str, why: str) -> None:
        """It ended before it was ready."""
        span = self._open.pop(worker, None)
        if span:
            telemetry.fail(span, ChildProcessError(why))
            span.end()
