"""Pools whose workers run several jobs at a time: measured and demanded in slots.

To a formula a worker is what runs one job at a time. A strategy that calculates with run times sees
each slot as such a worker, and its demand is rounded up to whole workers; one that counts workers
(`fixed`, `queue_size`) sees workers. With one slot a worker nothing is changed.
"""

from __future__ import annotations

from msgspec.structs import replace

from penstock.decider.core.strategy import Demand, Strategy, StrategyInputs, whole
from penstock.events.scaling import Reason
from penstock.events.snapshot import PoolSnapshot


def counts_slots(strategy: Strategy) -> bool:
    """Whether a strategy works in slots, by its attribute ``counts_slots``."""
    return getattr(strategy, "counts_slots", False) is True


def inputs_in_slots(inputs: StrategyInputs) -> StrategyInputs:
    """``inputs`` with a worker for each slot, in the snapshot, the plan and the bounds."""
    slots, profile = inputs.pool.job_slots, inputs.pool.profile
    profile = replace(
        profile,
        min_workers=profile.min_workers * slots,
        max_workers=profile.max_workers * slots,
    )
    return replace(
        inputs,
        pool=replace(inputs.pool, profile=profile),
        snapshot=snapshot_in_slots(inputs.snapshot, slots),
        current=inputs.current * slots,
        slots=slots,
    )


def snapshot_in_slots(snapshot: PoolSnapshot, slots: int) -> PoolSnapshot:
    """``snapshot`` with a worker for each slot.

    Args:
        slots: of one worker; 1 leaves the snapshot as it is.
    """
    if slots == 1:
        return snapshot
    fit = snapshot.spawn_fit
    if fit is not None:  # as many slots start together as their workers have
        fit = replace(
            fit,
            contention_seconds=fit.contention_seconds / slots,
            most_together=fit.most_together * slots,
        )
    return replace(
        snapshot,
        workers_ready=snapshot.slots_ready or snapshot.workers_ready * slots,
        workers_idle=snapshot.slots_idle if snapshot.slots_ready else snapshot.workers_idle * slots,
        spawn_fit=fit,
    )


def demand_in_workers(demand: Demand, slots: int) -> Demand:
    """A demand for slots as one for workers; its reasons say how many that are of each."""
    reasons = tuple(
        replace(
            reason,
            workers=whole(reason.workers / slots),
            text=_text_in_slots(reason, slots),
        )
        for reason in demand.reasons
    )
    return replace(demand, workers=demand.workers / slots, reasons=reasons)


def _text_in_slots(reason: Reason, slots: int) -> str:
    """A strategy's text, whose numbers of workers are of slots."""
    workers = whole(reason.workers / slots)
    count = "1 worker" if workers == 1 else f"{workers} workers"
    return f"{count} with {slots} slots each; counted in slots: {reason.text}"
