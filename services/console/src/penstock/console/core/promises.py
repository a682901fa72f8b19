"""How each pool keeps its promise: the first thing that the console shows. Pure."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.events.scaling import ScalingDecisionMade
from penstock.events.snapshot import Budget
from penstock.views.source_state import SourceState


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """One pool's promise, and what stands behind it.

    Attributes:
        sla_seconds: jobs start within this time.
        quantile: the share of jobs for which that is promised.
        state: as in `penstock pool ls`: ``unknown``, ``ok``, ``late``, ``short``, ``spent`` or
            ``crash-loop``.
        kept_share: share of the window's jobs that started in time; None before there was one.
        window_seconds: the promise holds over this time.
        budget_left_share: share of the jobs that may be late which is left; None where it is not
            counted.
        burn_rate: how many times faster than allowed jobs are late now.
        used_up_in_seconds: when the budget is used up at this pace; None for never.
        pickup_p99_seconds: of jobs that started lately.
        predicted_pickup_seconds: for a job that is dispatched now, by the last decision.
        reason: of the last decision.
        hold: an operator's hold and its end; empty for none.
        paused_queues: queues of the pool that are paused.
        source: of queues in another system; None for queues of our own.
    """

    pool: str
    kind: str
    sla_seconds: float
    quantile: float
    state: str
    kept_share: float | None = None
    window_seconds: float | None = None
    budget_left_share: float | None = None
    burn_rate: float = 0.0
    used_up_in_seconds: float | None = None
    waiting: int | None = None
    running: int | None = None
    oldest_waiting_seconds: float | None = None
    pickup_p99_seconds: float | None = None
    predicted_pickup_seconds: float | None = None
    ready: int = 0
    started: int = 0
    planned: int = 0
    target: int | None = None
    decision_id: str = ""
    decided_at: datetime | None = None
    reason: str = ""
    hold: str = ""
    paused_queues: tuple[str, ...] = ()
    source: SourceState | None = None

    @property
    def is_predicted_late(self) -> bool:
        """Whether a job that is dispatched now is expected to start late."""
        predicted = self.predicted_pickup_seconds
        return predicted is not None and predicted > self.sla_seconds


def kept_share(budget: Budget | None) -> float | None:
    """Share of the window's jobs that started in time."""
    if budget is None or not budget.jobs:
        return None
    return max(0.0, 1.0 - budget.late / budget.jobs)


def burn_rate(budget: Budget | None) -> float:
    """The faster of the two paces at which a budget is used."""
    return max(budget.burn_rate_short, budget.burn_rate_long) if budget else 0.0


def used_up_in_seconds(budget: Budget | None) -> float | None:
    """When a budget is used up at the present pace: at rate 1, a whole one lasts one window."""
    rate = burn_rate(budget)
    if budget is None or rate <= 0 or budget.remaining_share <= 0:
        return None
    return budget.remaining_share * budget.window_seconds / rate


def decision_id(decision: ScalingDecisionMade | None) -> str:
    """The id under which a decision is shown; empty for none."""
    return decision.id if decision else ""
