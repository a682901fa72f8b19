"""A pool's measurements, folded over its queues and workers into a snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from penstock.config import Profile
from penstock.events.snapshot import PoolSnapshot, Quantiles, WaitingJob
from penstock.events.worker import QueueReport, WorkerReport
from penstock.measuring.budget import Ledger, late_in_line
from penstock.measuring.forecast import Forecaster
from penstock.measuring.quantiles import SERVICE_SAMPLES
from penstock.measuring.rates import RateWindow
from penstock.measuring.running import with_running
from penstock.measuring.starts import Starts
from penstock.measuring.trained import Curve
from penstock.metrics.core.ended_jobs import EndedJobs
from penstock.metrics.core.job_totals import JobTotals
from penstock.metrics.core.lapsed import LapsedClaims
from penstock.metrics.core.line import evenly, evenly_chosen
from penstock.metrics.core.queue import Look, Queue
from penstock.metrics.core.sketches import BadSketch, Distribution
from penstock.metrics.core.totals import Totals
from penstock.metrics.core.workers import Workers, lapsed

_DEFAULT_HORIZON_SECONDS = 5.0
"""How far a forecast looks while the start time of a worker is not known."""


class PoolMeter:
    """What is known of one pool. Times are seconds of one steady clock.

    Args:
        queues: the pool's queues in priority order; several for a group.
        profile: its promise.
        window_seconds: how far back rates and distributions look.
        interval_seconds: usual time between looks.
        patience_seconds: after which a job that no living worker holds is taken as waiting.
        slots: how many jobs a worker runs at a time.
        jobs: counts by function, shared by all pools; None for counts of its own.
    """

    def __init__(
        self,
        name: str,
        queues: Sequence[Queue],
        profile: Profile,
        window_seconds: float = 60.0,
        interval_seconds: float = 1.0,
        patience_seconds: float = 6.0,
        jobs: JobTotals | None = None,
        slots: int = 1,
    ) -> None:
        self.name, self._slots = name, slots
        self.queues = tuple(queues)
        self._profile = profile
        self.workers = Workers()
        self.totals = Totals(queue.name for queue in queues)
        self._job_totals = JobTotals() if jobs is None else jobs
        self._ended = EndedJobs(window_seconds)
        self._arrivals = RateWindow(window_seconds, interval_seconds)
        self._finishes = RateWindow(window_seconds, interval_seconds)
        self._finished = 0
        self._forecaster = None if profile.forecast == "off" else Forecaster()
        self._interval_seconds = interval_seconds
        self._at: float | None = None
        self._lapsed = LapsedClaims(patience_seconds)
        self._service = Distribution(window_seconds, keeps=SERVICE_SAMPLES)
        self._pickup = Distribution(window_seconds)
        self._spawn = Starts()
        self._ledger = Ledger(profile.sla_seconds, profile.quantile, profile.budget_window_seconds)

    def include(self, queue: Queue) -> None:
        """A further queue, found later, which was looked at already."""
        self.queues = (*self.queues, queue)
        self.totals.include(queue.name)

    # --- taking in -------------------------------------------------------------------------------
    def observe(self, now: float) -> None:
        """The queues were looked at again: rates go on from the look before."""
        looks = self._looks()
        if looks is None:
            return
        self.workers.refresh(now)
        at = min((look.at for look in looks), default=now)
        if self._at is not None:
            self._observe_rates(self._at, at)
        self._at = at
        delivered = any(
            q.before is None or q.look is None or q.look.delivered != q.before.delivered
            for q in self.queues
        )
        claimed = sum(look.claimed for look in looks)
        self._lapsed.observe(claimed, self.workers.held, delivered, now)

    def _observe_rates(self, start: float, end: float) -> None:
        came = [queue.arrived for queue in self.queues]
        # One queue that cannot be compared hides the pool's rate: a zero would look like calm.
        if None not in came:
            self._arrivals.add(start, end, sum(filter(None, came)))
            if self._forecaster:
                self._forecaster.aim(self._horizon_seconds(end) + self._interval_seconds)
                self._forecaster.add(start, end, sum(filter(None, came)), self._arrivals)
        # Before the first report, nothing finished would be a wrong zero: no worker was counted.
        if self.workers.reported_at is not None:
            self._finishes.add(start, end, self._finished)
        self._finished = 0

    def add_report(self, report: WorkerReport, now: float) -> None:
        """A worker's report.

        Raises:
            BadSketch: durations in it that cannot be used; everything else in it was taken.
        """
        if not self.workers.add_report(report, now):
            return
        self._job_totals.add(report, now)
        self._ended.reported(now)
        own_queues = {queue.name for queue in self.queues}
        failures = [
            failure
            for name, done in report.queues.items()
            if name in own_queues
            and (failure := self._add_queue_report(name, done, report.at, now))
        ]
        if failures:
            raise failures[0]

    def _add_queue_report(
        self, name: str, done: QueueReport, at: float, now: float
    ) -> BadSketch | None:
        self._finished += max(done.finished, 0)
        self._ledger.add(done.started, done.late, now)
        self.totals.add(name, done, at)
        self._ended.add(name, done.finished, done.failed, now)
        try:
            if done.service_sketch:
                counts = self._service.merge(
                    done.service_sketch, done.service_sum_seconds, done.service_sum_squares, now
                )
                self.totals.run.add(counts, done.service_sum_seconds)
            if done.pickup_sketch:
                sketch, total = done.pickup_sketch, done.pickup_sum_seconds
                self.totals.pickup.add(self._pickup.merge(sketch, total, 0.0, now), total)
        except BadSketch as error:
            return error
        return None

    def add_spawn(self, seconds: float, together: int, now: float) -> None:
        """A worker became ready, so long after its host got the command.

        Args:
            together: how many workers were starting on that host, this one included.

        Raises:
            ValueError: that is no duration.
        """
        self._spawn.add(seconds, together, now)

    def use_forecast(self, curve: Curve | None) -> None:
        """A trained forecast of this pool's arrivals, by the meter's clock; None: none any more."""
        if self._forecaster:
            self._forecaster.trust(curve)

    def remember(self, last: PoolSnapshot, now: float, silent_seconds: float) -> None:
        """What an earlier process measured and is still worth knowing: how long things take.

        Args:
            silent_seconds: since that snapshot was taken.
        """
        at = now - max(silent_seconds, 0.0)
        self._service.remember(last.service, _newest_at(last.service, at))
        self._spawn.remember(last.spawn, last.spawn_fit, _newest_at(last.spawn, at))
        self.workers.remember(last, at)
        self._ledger.remember(last.budget, at)
        if self._forecaster:
            self._forecaster.remember(last.forecast)

    # --- giving out ------------------------------------------------------------------------------
    @property
    def is_known(self) -> bool:
        """Every queue was looked at."""
        return self._looks() is not None

    @property
    def has_arrivals(self) -> bool:
        """Jobs came between the last two looks."""
        return any(queue.arrived for queue in self.queues)

    @property
    def existing(self) -> int:
        """Jobs that wait or are claimed, at the last look."""
        return sum(look.waiting + look.claimed for look in self._looks() or ())

    def waiting(self, now: float) -> int:
        return sum(look.waiting for look in self._looks() or ()) + self._lapsed.waiting(now)

    def snapshot(
        self, now: float, at: datetime, envelope: Mapping[str, str], wakeup: str
    ) -> PoolSnapshot | None:
        """The pool now; None while one of its queues was never looked at.

        Args:
            at: the same instant as ``now``, by the wall clock.
            envelope: ``id`` and ``source`` of the snapshot.
        """
        looks = self._looks()
        if looks is None:
            return None
        workers, rate = self.workers, self._arrivals.rate(self._horizon_seconds(now))
        lapsed = self._lapsed.waiting(now)
        waiting = sum(look.waiting for look in looks) + lapsed
        oldest, ages = self._oldest_seconds(now, at.timestamp()), self._ages(now, at.timestamp())
        late = late_in_line(waiting, ages or (oldest or 0.0,), self._ledger.sla_seconds)
        return PoolSnapshot(
            id=envelope["id"],
            source=envelope["source"],
            at=at,
            pool=self.name,
            queues=tuple(queue.name for queue in self.queues),
            waiting=waiting,
            delayed=sum(queue.delayed or 0 for queue in self.queues),
            running=max(sum(look.claimed for look in looks) - lapsed, 0),  # below 0 it is refused
            oldest_waiting_seconds=oldest,
            waiting_ages_seconds=ages,
            waiting_jobs=self._jobs(at.timestamp()),
            arrival_per_second=rate.per_second if rate else None,
            arrival_trend=rate.trend if rate else "stable",
            forecast_per_second=rate.forecast_per_second if rate else None,
            forecast=self._forecaster.forecast(now) if self._forecaster else None,
            throughput_per_second=self._finishes.mean_per_second(),
            service=with_running(self._service.quantiles(now), tuple(workers.running_seconds(now))),
            pickup=self._pickup.quantiles(now),
            spawn=self._spawn.quantiles(now),
            spawn_fit=self._spawn.fit(),
            budget=self._ledger.budget(late, now),
            workers_ready=workers.ready,
            workers_idle=workers.idle,
            slots=self._slots,
            slots_ready=workers.slots_ready if self._slots > 1 else 0,
            slots_idle=workers.slots_idle if self._slots > 1 else 0,
            worker_cpu_cores=self._worth(workers.cpu_cores, self._profile.cpu_cores, now),
            worker_memory_bytes=_whole(
                self._worth(workers.memory_bytes, self._profile.memory_bytes, now)
            ),
            queue_age_seconds=self._queue_age_seconds(looks, now),
            worker_age_seconds=_since(workers.reported_at, now),
            worker_use_age_seconds=_since(workers.used_at, now),
            wakeup=wakeup,
            ended=self._ended.total(now),
            ended_by_queue=self._ended.by_queue(now),
        )

    @property
    def unread_fault(self) -> str:
        """Why there never was a snapshot, of queues that are elsewhere; empty where there was."""
        return ""

    def _worth(self, measured: float | None, configured: float, now: float) -> float | None:
        """What one worker uses, as far as that is still known."""
        used_at = self.workers.used_at
        if measured is None or used_at is None:
            return measured
        return lapsed(measured, configured, now - used_at)

    def _horizon_seconds(self, now: float) -> float:
        """How far ahead matters: until a worker that is asked for now is ready."""
        spawn = self._spawn.quantiles(now)
        return spawn.p95_seconds if spawn else _DEFAULT_HORIZON_SECONDS

    def _looks(self) -> tuple[Look, ...] | None:
        """None until all queues were looked at; a pool whose work is elsewhere has none."""
        looks = tuple(queue.look for queue in self.queues if queue.look is not None)
        return looks if len(looks) == len(self.queues) else None

    def _oldest_seconds(self, now: float, wall_now: float) -> float | None:
        """The largest of the queues' ages; one unknown age makes it unknown."""
        ages = [queue.oldest_seconds(wall_now) for queue in self.queues]
        measured = [age for age in ages if age is not None]
        if len(measured) < len(ages):
            return None
        return max((*measured, self._lapsed.oldest_seconds(now)))

    def _ages(self, now: float, wall_now: float) -> tuple[float, ...]:
        """Along the line of all queues together, jobs that no worker holds any more included."""
        lapsed = self._lapsed.waiting(now), ((0, self._lapsed.oldest_seconds(now)),)
        return evenly((*(queue.ages(wall_now) for queue in self.queues), lapsed))

    def _jobs(self, wall_now: float) -> tuple[WaitingJob, ...]:
        """Some of the waiting jobs by name; those that are redelivered are not among them."""
        return evenly_chosen(job for queue in self.queues for job in queue.jobs(wall_now))

    def _queue_age_seconds(self, looks: Sequence[Look], now: float) -> float:
        heads = max((queue.head_age_seconds(now) for queue in self.queues), default=0.0)
        return max(now - min((look.at for look in looks), default=now), heads)


def _newest_at(quantiles: Quantiles | None, at: float) -> float | None:
    if quantiles is None or quantiles.age_seconds is None:
        return None
    return at - quantiles.age_seconds


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _since(at: float | None, now: float) -> float | None:
    return None if at is None else max(now - at, 0.0)
