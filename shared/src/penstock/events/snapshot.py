"""What was measured about a pool or a host at an instant: the inputs of every decision.

Every measurement carries its age when the snapshot was taken, so that a decision distinguishes a
fresh zero from a missing value. A value that was never measured is None, never zero.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from penstock.events.envelope import Codec, Event, Int64


class Quantiles(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A distribution, summed up: sample count, mean and quantiles, all in seconds.

    Attributes:
        cv2: squared coefficient of variation: variance over squared mean.
        age_seconds: since its newest sample came in; None where it is not known.
    """

    count: Int64
    mean_seconds: float
    p50_seconds: float
    p95_seconds: float
    p99_seconds: float
    cv2: float = 1.0
    age_seconds: float | None = None


class SpawnFit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How long a worker takes to start when ``k`` start together on its host.

    ``L(k) = L(1) + contention_seconds * (k - 1)``, of the mean and of each quantile: a straight
    line through the starts of late (least squares), and the quantiles of what is left around it.

    Attributes:
        mean_seconds: mean of L(1), from command to ready.
        p95_seconds: 95 % quantile of L(1).
        p99_seconds: 99 % quantile of L(1).
        contention_seconds: time that each further worker adds; 0 where none can be measured.
        most_together: the largest ``k`` that was seen; beyond it the line is a guess.
    """

    mean_seconds: float
    p95_seconds: float
    p99_seconds: float
    contention_seconds: float = 0.0
    most_together: Int64 = 1


class Forecast(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Arrivals per second over the next ``horizon_seconds``.

    The quantiles are corrected by the model's own past errors, so that each is exceeded as often as
    it says. While no model beats the level (the rate goes on as it is), ``model`` is ``level``,
    ``off`` says why, and the figures are the level's, which are as usable.

    Attributes:
        model: ``level``, ``slope``, ``smooth-…``, ``holt-…``, ``daily``, ``weekly``, these two with
            ``-naive`` behind them; ``trained`` (of `ForecastMade`) or ``trained-change`` (the
            level, changed as that one changes).
        horizon_seconds: about as long as a worker takes to start, and the measuring.
        mean_per_second: expected jobs a second; the other three are upper quantiles.
        relative_loss: quantile loss over that of the level lately (the best other model's where it
            is off); below 1 is better than no forecast. None before it is known.
        age_seconds: since the figures were made.
    """

    model: str
    horizon_seconds: float
    mean_per_second: float
    p80_per_second: float
    p95_per_second: float
    p99_per_second: float
    relative_loss: float | None = None
    off: str = ""
    age_seconds: float = 0.0


class Budget(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is left of the share of jobs that may start late (the pool's quantile leaves it).

    ``allowed = max((1 - quantile) * jobs, 1)`` jobs may be late in any window: with few jobs, one.
    A burn rate is how many times faster than allowed jobs are late; at 1 the budget is just used up
    at the window's end. Each is the lower of two, over a stretch and over its last twelfth, so that
    it rises only for what matters and falls soon after it is over (Google, *The Site Reliability
    Workbook*, ch. 5).

    Attributes:
        sla_seconds: the promise: jobs start within this time.
        quantile: the promise: the share of jobs that do.
        window_seconds: the promise holds over this time.
        jobs: jobs started within the window.
        late: jobs of the window that started after the promise.
        waiting_late: jobs that wait now and are late already.
        remaining_share: share of the budget that is left: 1 when nothing was late, 0 when it is
            spent, less beyond.
        burn_rate_short: burn rate over the window's last 24th (1 h of a day) and its twelfth (5
            min).
        burn_rate_long: burn rate over the window's last quarter (6 h of a day) and its twelfth (30
            min).
        parts: (seconds, jobs, late) over those stretches, shortest first, for a restart to continue
            from.
    """

    sla_seconds: float
    quantile: float
    window_seconds: float
    jobs: Int64 = 0
    late: Int64 = 0
    waiting_late: Int64 = 0
    remaining_share: float = 1.0
    burn_rate_short: float = 0.0
    burn_rate_long: float = 0.0
    parts: tuple[tuple[float, Int64, Int64], ...] = ()


class StreamLoad(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A streaming query that a pool of Spark Workers has as its source.

    Attributes:
        query: its name.
        rows_per_second: that come: the latest batch's, or the mean of the last three where that is
            more; None before two batches were done.
        growth_per_second: by which that rate grows each second, where it grew twice in a row.
        lag_rows: that its sources held back from the latest batch; None where they do not say.
        interval_seconds: between two triggers, of batches that ended before the next one; 0 where
            one follows the other at once.
        batch_rows: of the latest batch.
        batch_seconds: of the latest batch, from its trigger to its end.
        task_seconds_per_row: a slot's time for a row; None before a batch with rows was done.
        fixed_seconds: of a batch beside that, whatever the slots: planning, commits, scheduling,
            slots that have nothing left to do.
        is_measured: the task seconds are Spark's own; else they are the batches' time on all slots.
        running_seconds: since the trigger of the batch under way; 0 where none is.
        running_task_seconds: work in that batch, as far as it shows.
        slots: that the query has now.
        ended: why it needs no slots any more; empty while it runs.
    """

    query: str
    rows_per_second: float | None = None
    growth_per_second: float = 0.0
    lag_rows: Int64 | None = None
    interval_seconds: float = 0.0
    batch_rows: Int64 = 0
    batch_seconds: float = 0.0
    task_seconds_per_row: float | None = None
    fixed_seconds: float = 0.0
    is_measured: bool = False
    running_seconds: float = 0.0
    running_task_seconds: float = 0.0
    slots: float = 0.0
    ended: str = ""


class WaitingJob(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A waiting job that was looked up: its id, and the seconds since it could have started."""

    id: str
    waited_seconds: float


class EndedRate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Attempts that ended lately (``metrics.window_seconds``), a minute; of these, the failed."""

    finished_per_minute: float
    failed_per_minute: float = 0.0

    @property
    def failed_share(self) -> float | None:
        """Share of the attempts that failed; None where none ended."""
        if not self.finished_per_minute:
            return None
        return self.failed_per_minute / self.finished_per_minute


MOST_ENDED_QUEUES = 100
"""Queues of which a snapshot says how many attempts ended: those with most."""


class PoolSnapshot(Event, frozen=True, kw_only=True, tag=True):
    """A pool at an instant; a group's figures are aggregated over its queues.

    Attributes:
        waiting: jobs that could start now.
        delayed: jobs scheduled or retrying, not yet due.
        running: jobs claimed by workers.
        expected: those of the waiting that are not there yet: tasks which jobs of other pools are
            going to bring to a Spark pool.
        oldest_waiting_seconds: age of the oldest waiting job; 0 when none waits, None when unknown.
        waiting_ages_seconds: ages at evenly spaced places in the line, from the oldest waiting job
            to the newest; empty where they are not known, or all so young that they do not matter.
        waiting_jobs: some of them by id, the oldest first: a decision names the job that it was
            made for, and needs none of this else.
        arrival_per_second: measured by the growth of the queue's stored sequence; None before two
            samples.
        arrival_trend: ``up``, ``down`` or ``stable``; forecast is None when there is none.
        service: run-time distribution.
        pickup: pickup-time distribution.
        spawn: seconds from command to first job taken. None before the first sample.
        spawn_fit: start time by how many workers start together.
        forecast: of arrivals; None before there is one, and where the pool's settings forbid it.
        budget: what is left of the jobs that may start late; None where it is not counted.
        workers_ready: workers that took or could take a job.
        workers_idle: ready workers without a job.
        slots: how many jobs a worker runs at a time.
        slots_ready: slots of the ready workers, where a worker has more than one; else 0.
        slots_idle: of these, the ones without a job.
        worker_cpu_cores: mean of the cores used by one worker while it works.
        worker_memory_bytes: mean of the memory used by one worker while it works.
        queue_age_seconds: age of the queue measurements.
        worker_age_seconds: age of the workers' latest report; None before the first.
        worker_use_age_seconds: age of the workers' use of cores and memory; None where it is
            unknown.
        ended: attempts that ended lately, and those that failed; None before the first report.
        ended_by_queue: the same by queue, of at most the 100 busiest queues.
        wakeup: why the snapshot was taken: ``tick``, ``first-job`` or ``backlog``.
        source: the ``[sources.NAME]`` whose queues these are; empty for queues of our own.
        source_fault: why one of its queues could not be looked at; the figures are those of the
            last look.
        estimated: fields of this snapshot that were worked out, not read from the source.
        stuck: messages that wait at the source and are not in ``waiting``: none came, started or
            ended for a minute though workers were idle, or they are behind one that is not handled.
        streams: the queries of a source of kind ``spark-stream``, whose batches are the jobs here:
            ``running`` are under way, ``waiting`` are under way for longer than promised,
            ``pickup`` and ``service`` are their times from trigger to end.
        cap: messages that can be handled at a time at most, such as the partitions of a topic; None
            where that is not known.
    """

    noun: ClassVar[str] = "pool"
    key_field: ClassVar[str] = "pool"

    pool: str
    queues: tuple[str, ...]
    waiting: Int64
    delayed: Int64 = 0
    running: Int64 = 0
    oldest_waiting_seconds: float | None = 0.0
    waiting_ages_seconds: tuple[float, ...] = ()
    waiting_jobs: tuple[WaitingJob, ...] = ()
    expected: Int64 = 0
    arrival_per_second: float | None = None
    arrival_trend: str = "stable"
    forecast_per_second: float | None = None
    forecast: Forecast | None = None
    throughput_per_second: float | None = None
    service: Quantiles | None = None
    pickup: Quantiles | None = None
    spawn: Quantiles | None = None
    spawn_fit: SpawnFit | None = None
    budget: Budget | None = None
    workers_ready: Int64 = 0
    workers_idle: Int64 = 0
    slots: Int64 = 1
    slots_ready: Int64 = 0
    slots_idle: Int64 = 0
    worker_cpu_cores: float | None = None
    worker_memory_bytes: Int64 | None = None
    queue_age_seconds: float = 0.0
    worker_age_seconds: float | None = None
    worker_use_age_seconds: float | None = None
    wakeup: str = "tick"
    ended: EndedRate | None = None
    ended_by_queue: dict[str, EndedRate] = {}
    source: str = ""
    source_fault: str = ""
    estimated: tuple[str, ...] = ()
    stuck: Int64 = 0
    streams: tuple[StreamLoad, ...] = ()
    cap: Int64 | None = None


class SourceUnread(Event, frozen=True, kw_only=True, tag=True):
    """The queues of a pool in another system were never looked at with success: why.

    Stands in the place of the pool's snapshot until there is one, so that nothing takes figures
    that are not known for zeros.

    Attributes:
        of_source: the ``[sources.NAME]`` whose queues they are.
        source_fault: why one of them could not be looked at.
    """

    noun: ClassVar[str] = "pool"
    key_field: ClassVar[str] = "pool"

    pool: str
    of_source: str
    source_fault: str


class PoolWorkers(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The three sets of one pool on one host, kept apart.

    Attributes:
        names: workers of this pool that have a process. Reports of other workers are not believed.
        builds: versions of the job code that its ready workers have.
        outdated: workers, draining ones too, that a reload replaces.
    """

    planned: Int64
    started: Int64
    ready: Int64
    draining: Int64 = 0
    crash_loop: bool = False
    names: tuple[str, ...] = ()
    builds: tuple[str, ...] = ()
    outdated: Int64 = 0


class HostSnapshot(Event, frozen=True, kw_only=True, tag=True):
    """A host at an instant. Sizes are what its cgroup allows, not what the machine has.

    Attributes:
        cpu_cores: usable cores.
        memory_bytes: usable memory.
        cpu_busy_cores: cores used by everything on the host.
        memory_used_bytes: memory used by everything on the host.
        own_cpu_busy_cores: the part of ``cpu_busy_cores`` used by this executor's workers.
        own_memory_bytes: the part of ``memory_used_bytes`` used by this executor's workers.
        max_workers: the operator's own ceiling, None for none.
        epoch: leader epoch of the last command this host obeyed.
        version: version of that command.
        pools: workers by pool.
        spark: ``unused``, ``running``, ``remote`` or ``down``.
        reload_error: why the last reload of the job code failed; empty where it did not.
    """

    noun: ClassVar[str] = "host"
    key_field: ClassVar[str] = "host"

    host: str
    cpu_cores: float
    memory_bytes: Int64
    cpu_busy_cores: float = 0.0
    memory_used_bytes: Int64 = 0
    own_cpu_busy_cores: float = 0.0
    own_memory_bytes: Int64 = 0
    max_workers: Int64 | None = None
    epoch: Int64 = 0
    version: Int64 = 0
    pools: dict[str, PoolWorkers] = {}
    draining: bool = False
    """The executor is ending: it takes no new workers."""
    spark: str = ""
    reload_error: str = ""


SNAPSHOTS = Codec(PoolSnapshot, HostSnapshot)
MEASURED = Codec(*SNAPSHOTS, SourceUnread)
"""What the metrics service and the executors publish of pools and hosts."""
