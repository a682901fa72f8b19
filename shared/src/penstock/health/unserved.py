"""Looks for queues that hold jobs which no pool takes."""

from __future__ import annotations

from penstock.bus.protocol import Bus
from penstock.config import Settings
from penstock.config.serving import serving
from penstock.config.topology import is_excluded
from penstock.events.envelope import utc_now
from penstock.events.subjects import Subjects
from penstock.health.facts import UnservedQueue

MOST_DATED = 10
"""Queues of which the oldest job is looked up: the number of queues is not ours to bound."""


async def unserved_queues(bus: Bus, settings: Settings) -> tuple[UnservedQueue, ...]:
    """Queues with waiting jobs and without a pool, those with the most jobs first.

    A queue that was never served has no consumer, so its depth is what its subject holds.

    Raises:
        BusError
    """
    subjects, owners = Subjects(settings.prefix), serving(settings)
    held = await bus.count(subjects.jobs_stream, subjects.queue("*"))
    jobs = {subject.rpartition(".")[2]: count for subject, count in held.items()}
    strays = {queue: count for queue, count in jobs.items() if not owners.pool(queue)}
    if not strays:
        return ()
    depths = await bus.depths()  # jobs that are still running there do not wait
    waiting = {q: depths[q].waiting if q in depths else count for q, count in strays.items()}
    ranked = sorted((q for q in strays if waiting[q]), key=lambda q: (-waiting[q], q))
    unserved = []
    for rank, queue in enumerate(ranked):
        after = depths[queue].delivered_sequence if queue in depths else 0
        dated = rank < MOST_DATED
        unserved.append(
            UnservedQueue(
                name=queue,
                jobs=waiting[queue],
                excluded=is_excluded(settings, queue),
                oldest_seconds=await oldest_seconds(bus, subjects, queue, after) if dated else None,
                why=owners.why_not(queue),
            )
        )
    return tuple(unserved)


async def oldest_seconds(
    bus: Bus, subjects: Subjects, queue: str, delivered_sequence: int
) -> float | None:
    """Age of the first job that was not delivered yet; None when there is none."""
    first = await bus.next(subjects.jobs_stream, subjects.queue(queue), delivered_sequence + 1)
    return max(0.0, (utc_now() - first.at).total_seconds()) if first else None
