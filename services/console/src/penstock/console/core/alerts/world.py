"""What rules look at, folded from events and snapshots as they come. Pure.

The same fold takes the live streams and, for a backtest, the recorded ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.events.envelope import Event
from penstock.events.health import HealthChanged
from penstock.events.job import JobDead, JobError
from penstock.events.scaling import (
    BudgetCapReached,
    LeaderChanged,
    PromiseBurning,
    ScalingDecisionMade,
    SlaBreached,
    SlaBreachPredicted,
    SlaRecovered,
)
from penstock.events.snapshot import Budget, HostSnapshot, PoolSnapshot
from penstock.events.worker import (
    HostJoined,
    HostLeft,
    HostLost,
    WorkerCrashLooping,
    WorkerReady,
    WorkerStopped,
    WorkerStuck,
)
from penstock.jobs.dead_letters.fingerprint import fingerprint

SAMPLE_SECONDS = 10.0
MOST_SAMPLES = 361
MOST_FINGERPRINTS, MOST_STUCK = 1_000, 200
HOUR, DAY = 3_600.0, 86_400.0
_SHORT_STRETCH, _LONG_STRETCH = 24, 4
"""A fast burn is counted over the budget's window by 24, a slow one over a quarter of it."""


@dataclass
class PoolFacts:
    """One pool.

    Attributes:
        measured_at: when its last snapshot was taken, or its last event happened.
        burning: pace and budget of the last report that it burns, and when that was.
        wanted: workers that the last decision's strategy and policies asked for before capacity.
        held_text: why capacity left fewer; empty where it did not.
        samples: (time, values by series), oldest first.
    """

    measured_at: float = 0.0
    snapshot: PoolSnapshot | None = None
    budget: Budget | None = None
    budget_at: float = 0.0
    burning: tuple[str, Budget, float] | None = None
    breached_at: float | None = None
    decision: ScalingDecisionMade | None = None
    predicted: SlaBreachPredicted | None = None
    held_text: str = ""
    cap: BudgetCapReached | None = None
    crash: tuple[WorkerCrashLooping, float] | None = None
    samples: deque[tuple[float, dict[str, float]]] = field(
        default_factory=lambda: deque(maxlen=MOST_SAMPLES)
    )


@dataclass
class HostFacts:
    """One host. ``lost_at``: since when it is silent; None while it is not."""

    heard_at: float = 0.0
    lost_at: float | None = None
    has_left: bool = False
    left_at: float = 0.0


@dataclass
class FailureFacts:
    """One kind of failure.

    Attributes:
        hours: jobs by hour since 1970, of the last 14 days.
        recent: times of the hour before the last one, at most 10,000.
        quiet_before: seconds without one before its present series began; None for the first.
        series_since: when that began.
    """

    fingerprint: str
    function: str
    error: JobError
    first_at: float
    last_at: float
    hours: dict[int, int] = field(default_factory=dict)
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=10_000))
    quiet_before: float | None = None
    series_since: float = 0.0


class World:
    """All facts.

    Args:
        stale_seconds: facts of a pool or host that are older are not known; infinite where only
            events were recorded.

    Attributes:
        muted: functions whose failures only rules see that name them.
    """

    def __init__(self, stale_seconds: float = 30.0) -> None:
        self.stale_seconds = stale_seconds
        self.pools: dict[str, PoolFacts] = {}
        self.hosts: dict[str, HostFacts] = {}
        self.failures: dict[str, FailureFacts] = {}
        self.muted: frozenset[str] = frozenset()
        self.stuck: dict[str, tuple[WorkerStuck, float]] = {}
        self.components: dict[str, HealthChanged] = {}
        self.leader_at: float | None = None
        self.begins_at: float | None = None
        self.is_connected = True

    def take_all(self, events: Iterable[Event]) -> None:
        """Takes some events, oldest first."""
        for event in events:
            self.take(event)

    def take(self, event: Event) -> None:
        """Takes one event or snapshot; what no rule looks at changes nothing."""
        at = event.at.timestamp()
        if self.begins_at is None:
            self.begins_at = at
        match event:
            case PoolSnapshot():
                self._take_snapshot(event, at)
            case HostSnapshot():
                self._take_host_snapshot(self._host(event.host), at)
            case JobDead():
                self._take_dead(event, at)
            case HealthChanged():
                self.components[event.component] = event
            case LeaderChanged():
                self.leader_at = max(self.leader_at or 0.0, at)
            case _:
                self._take_pool_event(event, at)
                self._take_process_event(event, at)

    def _take_snapshot(self, event: PoolSnapshot, at: float) -> None:
        pool = self._pool(event.pool, at)
        pool.snapshot = event
        if event.budget is not None:
            pool.budget, pool.budget_at = event.budget, at
        if not pool.samples or pool.samples[-1][0] + SAMPLE_SECONDS <= at:
            pool.samples.append((at, series(pool)))

    def _take_host_snapshot(self, host: HostFacts, at: float) -> None:
        host.heard_at = max(host.heard_at, at)
        # Events come by another stream: the last snapshot before the loss may be read after it.
        if host.lost_at is not None and at > host.lost_at:
            host.lost_at = None
        host.has_left = host.has_left and at <= host.left_at

    def _take_pool_event(self, event: Event, at: float) -> None:
        match event:
            case ScalingDecisionMade():
                pool = self._pool(event.pool, at)
                pool.decision = event
                self.leader_at = max(self.leader_at or 0.0, at)
                held = [
                    reason
                    for before, reason in zip(event.reasons, event.reasons[1:], strict=False)
                    if reason.step in ("capacity", "fair-share", "placement")
                    and reason.workers < before.workers
                ]
                pool.held_text = held[-1].text if held else ""
                predicted = event.predicted_pickup_seconds
                if predicted is not None and predicted <= event.sla_seconds:
                    pool.predicted = None
            case SlaBreachPredicted():
                self._pool(event.pool, at).predicted = event
            case SlaBreached():
                self._pool(event.pool, at).breached_at = at
            case SlaRecovered():
                self._pool(event.pool, at).breached_at = None
            case PromiseBurning():
                self._pool(event.pool, at).burning = (event.pace, event.budget, at)
            case BudgetCapReached():
                self._pool(event.pool, at).cap = event

    def _take_process_event(self, event: Event, at: float) -> None:
        match event:
            case HostLost():
                if at >= self._host(event.host).heard_at:  # snapshots come by another stream
                    self._host(event.host).lost_at = at
            case HostJoined():
                host = self._host(event.host)
                host.heard_at, host.lost_at, host.has_left = at, None, False
            case HostLeft():
                host = self._host(event.host)
                host.lost_at, host.has_left, host.left_at = None, True, at
            case WorkerCrashLooping():
                self._known_pool(event.pool).crash = (event, at)
            case WorkerReady():
                self._known_pool(event.pool).crash = None
            case WorkerStuck():
                if len(self.stuck) < MOST_STUCK:
                    self.stuck[event.worker] = (event, at)
            case WorkerStopped():
                self.stuck.pop(event.worker, None)

    def _take_dead(self, event: JobDead, at: float) -> None:
        key = fingerprint(event.error)
        failure = self.failures.get(key)
        if failure is None:
            if len(self.failures) >= MOST_FINGERPRINTS:
                oldest = min(self.failures.values(), key=lambda one: one.last_at)
                del self.failures[oldest.fingerprint]
            failure = self.failures[key] = FailureFacts(
                fingerprint=key,
                function=event.function,
                error=event.error,
                first_at=at,
                last_at=at,
                series_since=at,
            )
        elif at - failure.last_at > HOUR:
            failure.quiet_before, failure.series_since = at - failure.last_at, at
        failure.last_at = max(failure.last_at, at)
        while failure.recent and failure.recent[0] <= at - HOUR:
            failure.recent.popleft()
        failure.recent.append(at)
        hour = int(at // HOUR)
        failure.hours[hour] = failure.hours.get(hour, 0) + 1
        if len(failure.hours) > 14 * 24:
            del failure.hours[min(failure.hours)]

    def _pool(self, name: str, at: float) -> PoolFacts:
        pool = self._known_pool(name)
        pool.measured_at = max(pool.measured_at, at)
        return pool

    def _known_pool(self, name: str) -> PoolFacts:
        pool = self.pools.get(name)
        if pool is None:
            pool = self.pools[name] = PoolFacts()
        return pool

    def _host(self, name: str) -> HostFacts:
        return self.hosts.setdefault(name, HostFacts())


def series(pool: PoolFacts) -> dict[str, float]:
    """The newest value of each series that is known; names are those of expressions."""
    snapshot, decision, budget = pool.snapshot, pool.decision, pool.budget
    values: dict[str, float | None] = {}
    if snapshot is not None:
        values |= {
            "waiting": snapshot.waiting,
            "running": snapshot.running,
            "delayed": snapshot.delayed,
            "oldest_waiting": snapshot.oldest_waiting_seconds,
            "pickup_p99": snapshot.pickup.p99_seconds if snapshot.pickup else None,
            "arrivals": snapshot.arrival_per_second,
            "workers_ready": snapshot.workers_ready,
            "workers_idle": snapshot.workers_idle,
            "failed_share": snapshot.ended.failed_share if snapshot.ended else None,
        }
    if decision is not None:
        values |= {
            "promise": decision.sla_seconds,
            "predicted_pickup": decision.predicted_pickup_seconds,
        }
    if budget is not None:
        values |= {
            "promise": budget.sla_seconds,
            "budget_left": budget.remaining_share,
            "burn_rate": max(budget.burn_rate_short, budget.burn_rate_long),
        }
    return {name: float(value) for name, value in values.items() if value is not None}


def burn_lasts_seconds(pace: str, budget: Budget) -> float:
    """How long a report that a budget burns stands where no further measurement is recorded."""
    return budget.window_seconds / (_LONG_STRETCH if pace == "slow" else _SHORT_STRETCH)
