"""Looks for queues of other systems that the metrics service cannot read."""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec

from penstock.bus.protocol import Bus
from penstock.config import Pool
from penstock.events.envelope import MalformedEvent
from penstock.events.snapshot import MEASURED, PoolSnapshot, SourceUnread
from penstock.events.subjects import Subjects
from penstock.health.facts import SourceFacts


async def sources(bus: Bus, subjects: Subjects, pools: Iterable[Pool]) -> tuple[SourceFacts, ...]:
    """What the last snapshot of each pool with a source says of it.

    Raises:
        BusError
    """
    return tuple([await _facts(bus, subjects, pool) for pool in pools if pool.source])


async def _facts(bus: Bus, subjects: Subjects, pool: Pool) -> SourceFacts:
    unread = SourceFacts(pool=pool.name, source=pool.source)
    stored = await bus.last(subjects.snapshots_stream, subjects.pool_snapshot(pool.name))
    if stored is None:
        return unread
    try:
        snapshot = MEASURED.decode(stored.body)
    except MalformedEvent:
        return unread
    if isinstance(snapshot, SourceUnread) and snapshot.of_source == pool.source:
        return msgspec.structs.replace(unread, fault=snapshot.source_fault)
    if not isinstance(snapshot, PoolSnapshot) or snapshot.source != pool.source:
        return unread
    silent_seconds = max(time.time() - stored.at.timestamp(), 0.0)
    return SourceFacts(
        pool=pool.name,
        source=pool.source,
        fault=snapshot.source_fault,
        age_seconds=silent_seconds + snapshot.queue_age_seconds,
        stuck=snapshot.stuck,
    )
