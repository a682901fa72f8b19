"""The best that a fixed number of workers can do: chosen with the whole trace known."""

from __future__ import annotations

from heapq import heapify, heapreplace

from penstock.decider.simulator.model.load import Load


def late_share(load: Load, workers: int, sla_seconds: float, ready_at: float) -> float:
    """Share of jobs that start late with so many workers, all ready at ``ready_at``."""
    free = [ready_at] * workers
    heapify(free)
    late = 0
    for arrival, service in zip(load.arrivals, load.services, strict=True):
        start = max(free[0], arrival)
        late += start - arrival > sla_seconds
        heapreplace(free, start + service)
    return late / max(len(load.arrivals), 1)


def fixed_peak(
    load: Load, *, sla_seconds: float, quantile: float, spawn_seconds: float, most: int
) -> int:
    """The fewest workers that keep the promise if they are there from the first second on."""

    def kept(workers: int) -> bool:
        return late_share(load, workers, sla_seconds, spawn_seconds) <= 1 - quantile

    seconds = max(load.duration_seconds, 1.0)  # one job has no duration
    few, enough = 0, max(1, min(round(sum(load.services) / seconds), most))
    while enough < most and not kept(enough):
        few, enough = enough, min(enough * 2, most)
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if kept(middle) else (middle, enough)
    return enough
