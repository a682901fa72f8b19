"""Snapshots on their way out, each with the trace context of its measuring."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from penstock import telemetry
from penstock.bus.protocol import Bus, BusError, Outgoing
from penstock.events.envelope import encode
from penstock.events.snapshot import PoolSnapshot, SourceUnread
from penstock.events.subjects import Subjects
from penstock.metrics.core.cadence import TICK
from penstock.telemetry import names

log = logging.getLogger("penstock.metrics")


class Publisher:
    """Stores snapshots. A tick of a pool where nothing waits or changed starts no trace."""

    def __init__(self, bus: Bus, subjects: Subjects, source: str) -> None:
        self._bus = bus
        self._subjects = subjects
        self._source = source
        self._published: dict[str, tuple[int, int]] = {}

    async def publish(self, snapshots: Sequence[PoolSnapshot]) -> None:
        """Raises BusError when the broker did not store one of them."""
        await self._store([self._message(snapshot) for snapshot in snapshots])

    async def publish_unread(self, unread: Sequence[SourceUnread]) -> None:
        """Why pools have no snapshots yet, in their place; raises BusError likewise."""
        subject = self._subjects.pool_snapshot
        await self._store([Outgoing(subject(one.pool), encode(one)) for one in unread])

    async def _store(self, messages: Sequence[Outgoing]) -> None:
        for answer in await self._bus.append_many(messages):
            if isinstance(answer, BusError):
                raise answer

    def _message(self, snapshot: PoolSnapshot) -> Outgoing:
        subject = self._subjects.pool_snapshot(snapshot.pool)
        if not telemetry.enabled() or not self._is_news(snapshot):
            return Outgoing(subject, encode(snapshot))
        attributes = {
            names.MESSAGING_SYSTEM: names.NATS,
            names.MESSAGING_OPERATION_NAME: "measure",
            names.MESSAGING_OPERATION_TYPE: names.SEND,
            names.MESSAGING_DESTINATION: snapshot.pool,
            names.MESSAGING_CLIENT_ID: self._source,
            names.POOL: snapshot.pool,
            names.SNAPSHOT: snapshot.id,
        }
        with telemetry.span(
            names.measure(snapshot.pool),
            parent={},
            kind=telemetry.SpanKind.PRODUCER,
            attributes=attributes,
        ):
            return Outgoing(subject, encode(snapshot), telemetry.inject())

    def _is_news(self, snapshot: PoolSnapshot) -> bool:
        figures = (snapshot.waiting, snapshot.workers_ready)
        before = self._published.get(snapshot.pool)
        self._published[snapshot.pool] = figures
        return snapshot.waiting > 0 or snapshot.wakeup != TICK or figures != before
