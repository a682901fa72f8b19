"""The measurements of the simulated metrics service: rates, distributions, counts at each look."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime

from penstock.config import Profile
from penstock.decider.simulator.model.fleet import Fleet
from penstock.decider.simulator.model.samples import Samples
from penstock.events.snapshot import PoolSnapshot, Quantiles
from penstock.measuring.budget import Ledger, late_in_line
from penstock.measuring.forecast import Forecaster
from penstock.measuring.quantiles import SERVICE_SAMPLES
from penstock.measuring.rates import RateWindow
from penstock.measuring.running import with_running
from penstock.measuring.starts import Starts
from penstock.measuring.trained import Curve

WINDOW_SECONDS = 60.0
INTERVAL_SECONDS = 1.0
_DEFAULT_HORIZON_SECONDS = 5.0


class Meter:
    """Measures one pool. Times are seconds since the simulation's start.

    Attributes:
        arrived: jobs so far; the simulation counts them up.
        finished: of those, the ones that ended.
        waiting: jobs in the queue at the last look.
        ages_seconds: the ages of waiting jobs at the last look whose snapshot is taken, the oldest
            first.
    """

    def __init__(
        self,
        pool: str,
        fleet: Fleet,
        profile: Profile,
        origin: float,
        curve: Curve | None = None,
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        self._pool, self._fleet, self._origin = pool, fleet, origin
        self._arrivals = RateWindow(WINDOW_SECONDS, interval_seconds)
        self._interval_seconds = interval_seconds
        self._arrivals_mean, self._finishes = (
            RollingRate(WINDOW_SECONDS),
            RollingRate(WINDOW_SECONDS),
        )
        self._service = Samples(WINDOW_SECONDS, keeps=SERVICE_SAMPLES)
        self._pickup = Samples(WINDOW_SECONDS)
        self._spawn = Starts()
        self._horizon_seconds: float | None = None
        self._forecaster = None if profile.forecast == "off" else Forecaster()
        if self._forecaster and curve:
            self._forecaster.trust(curve)
        self._ledger = Ledger(profile.sla_seconds, profile.quantile, profile.budget_window_seconds)
        self._picked_up = self._late = 0
        self._looked_at: float | None = None
        self._before = (0, 0)
        self._number = 0
        self.arrived = self.finished = self.waiting = 0
        self.ages_seconds: tuple[float, ...] = ()
        self._worked = 0.0
        self.came = False

    def picked_up(self, seconds: float, now: float) -> None:
        self._pickup.add(seconds, now)
        self._picked_up += 1
        self._late += seconds > self._ledger.sla_seconds

    def took(self, seconds: float, now: float) -> None:
        """A job finished after running so long."""
        self.finished += 1
        self._worked += seconds
        self._service.add(seconds, now)

    def spawned(self, seconds: float, together: int, now: float) -> None:
        """A worker is ready; ``together``: how many were starting on its host."""
        self._spawn.add(seconds, together, now)
        self._horizon_seconds = None

    def look(self, waiting: int, now: float) -> None:
        """Rates go on from the look before."""
        self.waiting = waiting
        arrived, finished = self._before
        self._before = self.arrived, self.finished
        self.came = self.arrived > arrived
        if self._looked_at is not None:
            self._arrivals.add(self._looked_at, now, self.arrived - arrived)
            self._foresee(self._looked_at, now, self.arrived - arrived)
            self._arrivals_mean.add(self._looked_at, now, self.arrived - arrived)
            self._finishes.add(self._looked_at, now, self.finished - finished)
        self._ledger.add(self._picked_up, self._late, now)
        self._picked_up = self._late = 0
        self._looked_at = now

    def worked_seconds(self, now: float) -> float:
        """All the work that was done so far."""
        return self._worked + sum(now - slot.since for slot in self._fleet.busy())

    def arrival_per_second(self) -> float:
        """The plain mean over the window, 0 before anything was observed."""
        return self._arrivals_mean.per_second() or 0.0

    def service(self, now: float) -> Quantiles | None:
        """Run times, with the running jobs counted as "at least this long"."""
        finished = self._service.quantiles(now)
        ages = [now - slot.since for slot in self._fleet.busy()]
        return with_running(finished, ages)

    def snapshot(self, now: float, wakeup: str) -> PoolSnapshot:
        """As of the last look."""
        fleet, rate = self._fleet, self._arrivals.rate(self._horizon(now))
        late = late_in_line(self.waiting, self.ages_seconds, self._ledger.sla_seconds)
        self._number += 1
        return PoolSnapshot(
            id=f"simulated-{self._number}",
            at=datetime.fromtimestamp(self._origin + now, UTC),
            pool=self._pool,
            queues=(self._pool,),
            waiting=self.waiting,
            running=sum(1 for _ in fleet.busy()),
            oldest_waiting_seconds=self.ages_seconds[0] if self.ages_seconds else 0.0,
            waiting_ages_seconds=self.ages_seconds,
            arrival_per_second=rate.per_second if rate else None,
            arrival_trend=rate.trend if rate else "stable",
            forecast_per_second=rate.forecast_per_second if rate else None,
            forecast=self._forecaster.forecast(now) if self._forecaster else None,
            throughput_per_second=self._finishes.per_second(),
            service=self.service(now),
            pickup=self._pickup.quantiles(now),
            spawn=self._spawn.quantiles(now),
            spawn_fit=self._spawn.fit(),
            budget=self._ledger.budget(late, now),
            workers_ready=fleet.ready,
            workers_idle=fleet.idle,
            slots=fleet.slots,
            slots_ready=fleet.ready * fleet.slots if fleet.slots > 1 else 0,
            slots_idle=fleet.idle_slots if fleet.slots > 1 else 0,
            worker_age_seconds=0.0 if fleet.started else None,
            wakeup=wakeup,
        )

    def _foresee(self, start: float, end: float, count: int) -> None:
        if self._forecaster is not None:
            self._forecaster.aim(self._horizon(end) + self._interval_seconds)
            self._forecaster.add(start, end, count, self._arrivals)

    def _horizon(self, now: float) -> float:
        if self._horizon_seconds is None:
            spawn = self._spawn.quantiles(now)
            self._horizon_seconds = spawn.p95_seconds if spawn else _DEFAULT_HORIZON_SECONDS
        return self._horizon_seconds


class RollingRate:
    """A mean rate over the last ``window_seconds``."""

    def __init__(self, window_seconds: float) -> None:
        self._window = window_seconds
        self._intervals: deque[tuple[float, float, int]] = deque()
        self._count = 0

    def add(self, start: float, end: float, count: int) -> None:
        """``count`` happened in (start, end]."""
        self._intervals.append((start, end, count))
        self._count += count
        while self._intervals[0][1] <= end - self._window:
            self._count -= self._intervals.popleft()[2]

    def per_second(self) -> float | None:
        """None before anything was observed."""
        if not self._intervals:
            return None
        seconds = self._intervals[-1][1] - self._intervals[0][0]
        return self._count / seconds if seconds > 0 else None
