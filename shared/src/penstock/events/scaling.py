"""Decisions, their reasons, and the one command they lead to."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from penstock.events.envelope import Codec, Event, Int64
from penstock.events.snapshot import Budget


class Reason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One step of the way from measurement to number.

    Attributes:
        step: which step spoke: ``strategy``, ``bounds``, ``capacity``, ``fair-share``, ``policy``,
            ``cooldown``, ``stale``, ``hold``, ``placement``, ``advice``.
        rule: the strategy's or policy's name, e.g. ``hybrid.drain``.
        workers: the number after this step; the chain's last one is the decision's target.
        text: the sentence shown to people, everywhere the same.
        values: the figures it used, by name with unit.
    """

    step: str
    rule: str
    workers: Int64
    text: str
    values: dict[str, Any] = {}


class PoolEvent(Event, frozen=True, kw_only=True):
    noun: ClassVar[str] = "pool"
    key_field: ClassVar[str] = "pool"

    pool: str


class ScalingDecisionMade(PoolEvent, frozen=True, kw_only=True, tag=True):
    """How many workers a pool should have, and why.

    Attributes:
        current: workers planned before the decision. In advisor mode, where none of ours reports,
            at least those that the jobs in work need.
        target: workers planned after it.
        predicted_pickup_seconds: for a job arriving now, given the target; None when unknown.
        snapshot_ids: the pool's own snapshot. The other inputs, so that the decision can be
            recomputed: see `RoundDecided`, of the same ``epoch`` and number ``round``.
        placement: target by host.
        state: the pool's scaling state after this decision (cooldowns), restored by a new leader.
        epoch: the deciding leader's fencing token.
        round: its number within the epoch.
        through: sequence of the last snapshot that was seen; the round's record lies behind it.
        advice: the pool is in advisor mode: nothing was commanded, the plan stays what it was.
    """

    current: Int64
    target: Int64
    reasons: tuple[Reason, ...]
    strategy: str
    sla_seconds: float
    predicted_pickup_seconds: float | None = None
    snapshot_ids: tuple[str, ...] = ()
    placement: dict[str, Int64] = {}
    state: dict[str, Any] = {}
    epoch: Int64 = 0
    round: Int64 = 0
    through: Int64 = 0
    advice: bool = False


class SlaBreachPredicted(PoolEvent, frozen=True, kw_only=True, tag=True):
    """With what can be started, a job is expected to start late."""

    predicted_pickup_seconds: float
    sla_seconds: float
    decision_id: str
    waiting: Int64 = 0


class SlaBreached(PoolEvent, frozen=True, kw_only=True, tag=True):
    """The oldest waiting job is older than promised."""

    oldest_waiting_seconds: float
    sla_seconds: float


class SlaRecovered(PoolEvent, frozen=True, kw_only=True, tag=True):
    breached_seconds: float
    sla_seconds: float


class PromiseBurning(PoolEvent, frozen=True, kw_only=True, tag=True):
    """More jobs start late than the promise allows, for so long that an operator should look.

    Published when it begins and when it gets worse; see `Budget` of the pool's snapshot.

    Attributes:
        pace: ``slow`` (half the budget in a quarter of the window), ``fast`` (a quarter of it in a
            24th) or ``spent`` (more were late than may be in the whole window).
    """

    pace: str
    budget: Budget


class SlaBreachLasts(PoolEvent, frozen=True, kw_only=True, tag=True):
    """A breach goes on; published now and then by the policy `breach-notification`.

    Attributes:
        wanted: workers that the strategy wants.
        workers: workers that were decided.
        held_by: the last rule that left fewer workers, empty if none did.
        text: the sentence of that rule.
    """

    breached_seconds: float
    oldest_waiting_seconds: float
    sla_seconds: float
    wanted: Int64
    workers: Int64
    held_by: str = ""
    text: str = ""


class BudgetCapReached(PoolEvent, frozen=True, kw_only=True, tag=True):
    """The policy `budget-cap` holds a pool back, for the first time on this day."""

    wanted: Int64
    workers: Int64
    spent_worker_hours: float
    worker_hours_per_day: float


class ScalingIneffective(PoolEvent, frozen=True, kw_only=True, tag=True):
    """More workers did not get more done, as jobs took the longer: the bottleneck is elsewhere.

    Attributes:
        workers_before: busy workers of the earlier stretch, as a mean.
        workers: busy workers of the later stretch, as a mean.
        job_seconds_before: mean run time of a job in the earlier stretch.
        job_seconds: mean run time of a job in the later stretch.
        held_at: no workers are added beyond this number.
        held_seconds: how long none are added.
    """

    workers_before: float
    workers: float
    job_seconds_before: float
    job_seconds: float
    held_at: Int64
    held_seconds: float


class PolicySpoke(PoolEvent, frozen=True, kw_only=True, tag=True):
    """Something that a policy of an installed package wants to be known."""

    policy: str
    text: str
    values: dict[str, Any] = {}


class HostCountAdvised(Event, frozen=True, kw_only=True, tag=True):
    """All hosts together are too small for what pools need, or one could go.

    Published when this has lasted for a while, and again when the number changes: a provisioner
    that acts on each of these events does what is right.

    Attributes:
        scope: always ``all``.
        hosts: hosts that take workers now.
        needed: hosts that are needed.
        short_workers: by pool, workers that are wanted and fit nowhere.
    """

    noun: ClassVar[str] = "hosts"
    key_field: ClassVar[str] = "scope"

    hosts: Int64
    needed: Int64
    text: str
    scope: str = "all"
    short_workers: dict[str, Int64] = {}


class WorkersScaled(Event, frozen=True, kw_only=True, tag=True):
    """The command to one host: the full, absolute plan, workers by pool.

    ``(epoch, version)`` orders commands: epoch is the leader's fencing token, version counts up
    within it. A host obeys only what is newer than the last it obeyed.
    """

    noun: ClassVar[str] = "host"
    key_field: ClassVar[str] = "host"

    host: str
    epoch: Int64
    version: Int64
    pools: dict[str, Int64]
    decision_ids: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[int, int]:
        return (self.epoch, self.version)


class LeaderChanged(Event, frozen=True, kw_only=True, tag=True):
    noun: ClassVar[str] = "decider"
    key_field: ClassVar[str] = "leader"

    leader: str
    epoch: Int64
    previous: str | None = None


SCALING_EVENTS = Codec(
    ScalingDecisionMade,
    SlaBreachPredicted,
    SlaBreached,
    SlaRecovered,
    PromiseBurning,
    SlaBreachLasts,
    BudgetCapReached,
    ScalingIneffective,
    PolicySpoke,
    HostCountAdvised,
    WorkersScaled,
    LeaderChanged,
)
