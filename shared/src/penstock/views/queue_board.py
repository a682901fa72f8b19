"""How many jobs each queue holds, and how old its oldest is."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.bus import lookback
from penstock.bus.protocol import Bus, QueueDepth
from penstock.config import Settings
from penstock.config.serving import serving
from penstock.config.topology import is_excluded
from penstock.events.snapshot import MOST_ENDED_QUEUES, SNAPSHOTS, EndedRate, PoolSnapshot
from penstock.events.subjects import Subjects
from penstock.health.unserved import oldest_seconds
from penstock.jobs.queues.pauses import QueuePauses
from penstock.operations.settings_in_force import decider_settings
from penstock.views.delayed_jobs import delayed_jobs

_FRESH_SECONDS = 60.0


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """One queue. ``pool`` is empty where no pool serves it: its jobs wait for ever.

    Attributes:
        delayed: jobs that are scheduled or wait for their next try.
        paused_until: when the pause ends by itself; None for one that does not.
        pause_reason: given by the person who paused it.
        throughput_per_minute: attempts that ended lately, as the metrics service measured it; None
            where it did not, or of a queue that is not among the busiest of its pool.
        failed_share: share of these that failed; None where none ended.
    """

    queue: str
    pool: str
    excluded: bool
    waiting: int = 0
    running: int = 0
    delayed: int = 0
    paused: bool = False
    paused_until: datetime | None = None
    pause_reason: str = ""
    oldest_waiting_seconds: float | None = None
    throughput_per_minute: float | None = None
    failed_share: float | None = None


async def queue_rows(bus: Bus, settings: Settings) -> list[QueueRow]:
    """A row for each queue, by name; pools are those that the decider works with."""
    subjects = Subjects(settings.prefix)
    settings = await decider_settings(bus, subjects) or settings
    owners = serving(settings)
    depths = await bus.depths()
    delayed = await delayed_jobs(bus, subjects)
    stored = await _stored(bus, subjects)
    ended = await _ended(bus, subjects)
    pauses = await QueuePauses(bus, subjects, "").all()
    rows = []
    for name in sorted({*owners.owners, *depths, *delayed, *stored}):
        depth, rate, pause = depths.get(name), ended.get(name), pauses.get(name)
        is_paused = depth is not None and depth.paused
        rows.append(
            QueueRow(
                queue=name,
                pool=owners.pool(name),
                excluded=is_excluded(settings, name),
                waiting=depth.waiting if depth else stored.get(name, 0),
                running=depth.claimed if depth else 0,
                delayed=delayed[name],
                paused=is_paused,
                paused_until=depth.paused_until if depth else None,
                pause_reason=pause.reason if pause and is_paused else "",
                oldest_waiting_seconds=await _oldest(bus, subjects, name, depth),
                throughput_per_minute=rate.finished_per_minute if rate else None,
                failed_share=rate.failed_share if rate else None,
            )
        )
    return rows


async def _ended(bus: Bus, subjects: Subjects) -> dict[str, EndedRate]:
    """What ended lately on each queue, by the pools' last snapshots as far as these are fresh."""
    rates: dict[str, EndedRate] = {}
    pattern = subjects.pool_snapshot("*")
    for stored in await lookback.latest(bus, subjects.snapshots_stream, pattern):
        snapshot = SNAPSHOTS.decode(stored.body)
        if not isinstance(snapshot, PoolSnapshot) or snapshot.ended is None:
            continue
        if bus.now() - snapshot.at.timestamp() > _FRESH_SECONDS:
            continue
        if len(snapshot.ended_by_queue) < MOST_ENDED_QUEUES:  # else the others are not known
            rates |= dict.fromkeys(snapshot.queues, EndedRate(finished_per_minute=0.0))
        rates |= snapshot.ended_by_queue
    return rates


async def _stored(bus: Bus, subjects: Subjects) -> dict[str, int]:
    """Stored jobs by queue, also of queues without a consumer, which no pool ever served."""
    counts = await bus.count(subjects.jobs_stream, subjects.queue("*"))
    return {subject.rpartition(".")[2]: number for subject, number in counts.items()}


async def _oldest(
    bus: Bus, subjects: Subjects, queue: str, depth: QueueDepth | None
) -> float | None:
    if depth is not None and not depth.waiting:
        return None
    return await oldest_seconds(bus, subjects, queue, depth.delivered_sequence if depth else 0)
