"""How many jobs each queue holds, and how old its oldest is."""

from __future__ import annotations

import msgspec

from penstock.bus.protocol import Bus, QueueDepth
from penstock.config import Settings
from penstock.config.serving import serving
from penstock.config.topology import is_excluded
from penstock.events.subjects import Subjects
from penstock.health.unserved import oldest_seconds


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """One queue. ``pool`` is empty where no pool serves it: its jobs wait for ever."""

    queue: str
    pool: str
    excluded: bool
    waiting: int = 0
    running: int = 0
    delayed: int = 0
    paused: bool = False
    oldest_waiting_seconds: float | None = None


async def queue_rows(bus: Bus, settings: Settings) -> list[QueueRow]:
    """A row for each queue, by name."""
    subjects = Subjects(settings.prefix)
    owners = serving(settings)
    depths = await bus.depths()
    delayed = await _delayed(bus, subjects)
    stored = await _stored(bus, subjects)
    rows = []
    for name in sorted({*owners.owners, *depths, *delayed, *stored}):
        depth = depths.get(name)
        rows.append(
            QueueRow(
                queue=name,
                pool=owners.pool(name),
                excluded=is_excluded(settings, name),
                waiting=depth.waiting if depth else stored.get(name, 0),
                running=depth.claimed if depth else 0,
                delayed=delayed.get(name, 0),
                paused=depth.paused if depth else False,
                oldest_waiting_seconds=await _oldest(bus, subjects, name, depth),
            )
        )
    return rows


async def _delayed(bus: Bus, subjects: Subjects) -> dict[str, int]:
    """Delayed jobs and retries by queue: each is a schedule of the broker."""
    delayed: dict[str, int] = {}
    counts = await bus.count(subjects.jobs_stream, subjects.schedule("*", "*"))
    for subject, number in counts.items():
        name = subject.split(".")[-2]
        delayed[name] = delayed.get(name, 0) + number
    return delayed


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
