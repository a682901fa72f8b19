"""A pool's arrivals and run times, read back from the event log, for the simulator."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import numpy as np

from penstock.bus import lookback
from penstock.bus.protocol import Bus
from penstock.bus.since import first_since
from penstock.cli.errors import Failed
from penstock.cli.scaling.recorded_rounds import Progress, Span
from penstock.config import Pool
from penstock.decider.replay.stretches import installed
from penstock.decider.simulator.bounds.peak import fixed_peak
from penstock.decider.simulator.model import durations
from penstock.decider.simulator.model.load import Trace
from penstock.decider.simulator.model.spawning import Spawning
from penstock.decider.simulator.studies import study
from penstock.events.envelope import Event, UnknownEvent, utc_now
from penstock.events.job import JOB_EVENTS, JobCompleted, JobDispatched, JobStarted
from penstock.events.subjects import Subjects

RUN_SECONDS = "run_seconds"
_SEEDS = 3
_EVENTS = (JobDispatched, JobStarted, JobCompleted)
_CLOCKS_DIFFER_SECONDS = 1.0
"""Run times are of the worker's clock, the times of start and end of the broker's."""


class SimulatedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One pool's settings, simulated over the arrivals of the log; waits in seconds.

    Attributes:
        settings: the pool's name, and which settings.
        jobs: that arrived.
        hours: from the first to the last of them.
        late_share: of the jobs, later than promised by these settings; 0 to 1.
        keeps_promise: whether that is no more than these settings allow.
        wait_p95: of which 95 % of the jobs waited less.
        wait_max: the longest wait.
        worker_seconds: of all workers.
        actions: changes of the number of workers.
        fixed_workers: the size of a fixed fleet; 0 for settings that scale.
    """

    settings: str
    jobs: int
    hours: float = 0.0
    late_share: float
    keeps_promise: bool = False
    wait_p95: float
    wait_max: float
    worker_seconds: float
    actions: float
    fixed_workers: int = 0


def _no_progress(_: float) -> None:
    """Shows nothing."""


async def read(
    bus: Bus,
    subjects: Subjects,
    span: Span,
    pool: Pool,
    most_jobs: int | None = None,
    progress: Progress = _no_progress,
) -> Trace | None:
    """The times at which jobs of a pool could start, with their run times.

    Args:
        bus: a connection.
        subjects: of the installation.
        span: part of the event log.
        pool: whose queues count.
        most_jobs: that are taken; None for any number.
        progress: called with the share that is read.

    Returns:
        Jobs without a credible end run for the mean of the others; None where none has one.

    Raises:
        Failed: more jobs arrived.
    """
    recorded = _Recorded(pool, span.until or utc_now())
    stream = subjects.events_stream
    wanted = [subjects.events("job", "*", event.__name__) for event in _EVENTS]
    newest = [stored for subject in wanted if (stored := await bus.last(stream, subject))]
    last = max((stored.sequence for stored in newest), default=0)
    starts = [
        await first_since(bus, stream, subject, span.since) for subject in wanted if span.since
    ]
    start = min(starts, default=1)
    if start > last:
        return None
    async for stored in lookback.between(bus, stream, wanted, start, last):
        progress((stored.sequence - start + 1) / (last - start + 1))
        recorded.take(JOB_EVENTS.decode(stored.body), stored.at)
        if most_jobs is not None and len(recorded.arrived) > most_jobs:
            raise Failed(
                f"more than {most_jobs:,} jobs of pool {pool.name!r} arrived in this "
                "part of the log; take a shorter one"
            )
    return _trace(pool.name, recorded.arrived, recorded.ran) if recorded.ran else None


class _Recorded:
    """Jobs of a pool, as far as the broker's times bear out what their events say.

    Attributes:
        arrived: POSIX seconds at which each job could start, none after ``end``.
        ran: run times in seconds, each within the time from the job's start to its end.
    """

    def __init__(self, pool: Pool, end: datetime) -> None:
        self._queues, self._end = frozenset(pool.queues), end
        self._started_at: dict[str, datetime] = {}
        self.arrived, self.ran = dict[str, float](), dict[str, float]()

    def take(self, event: Event | UnknownEvent, at: datetime) -> None:
        """The next event of the log, stored at this time."""
        if isinstance(event, JobDispatched):
            # a forged or far `due_at` would stretch the simulated time by years
            due_at = max(event.due_at or at, at)
            if event.queue in self._queues and due_at <= self._end:
                self.arrived.setdefault(event.job_id, due_at.timestamp())
        elif isinstance(event, JobStarted) and event.job_id in self.arrived:
            self._started_at[event.job_id] = at
        elif isinstance(event, JobCompleted) and event.job_id in self._started_at:
            elapsed_seconds = (at - self._started_at[event.job_id]).total_seconds()
            if 0 <= event.run_seconds <= elapsed_seconds + _CLOCKS_DIFFER_SECONDS:
                self.ran.setdefault(event.job_id, event.run_seconds)


def _trace(name: str, arrived: dict[str, float], ran: dict[str, float]) -> Trace:

    jobs = sorted(arrived, key=lambda job: arrived[job])
    mean = sum(ran.values()) / len(ran)
    origin = arrived[jobs[0]]
    return Trace(
        name=name,
        origin=origin,
        times=np.array([arrived[job] - origin for job in jobs]),
        columns={RUN_SECONDS: np.array([max(ran.get(job, mean), 1e-6) for job in jobs])},
    )


def simulate(
    trace: Trace,
    pools: dict[str, Pool],
    spawn_seconds: float,
    progress: Progress = _no_progress,
) -> list[SimulatedSettings]:
    """Simulates the same arrivals under several settings, and with a fleet of fixed size.

    The fixed fleet is the smallest that keeps the promise of the first settings, within their
    bound. It is left out where a worker has several slots.

    Args:
        trace: arrivals and run times.
        pools: settings by a name for them.
        spawn_seconds: time that a worker takes to start.
        progress: called with the share that is done.
    """
    rows = []
    for number, (label, pool) in enumerate(pools.items(), 1):
        rows += _simulated(label, pool, trace, spawn_seconds, pool.profile.strategy)
        progress(number / (len(pools) + 1))
    first = next(iter(pools.values()))
    if first.job_slots == 1:
        workers = _fixed_fleet(trace, first, spawn_seconds)
        rows += _simulated(f"{workers} fixed", first, trace, spawn_seconds, "peak", workers)
    progress(1.0)
    return rows


def _study(trace: Trace, pool: Pool, spawn_seconds: float, strategy: str) -> Any:
    profile = pool.profile
    return study.Study(
        traces=[trace],
        names=[strategy],
        slas=[profile.sla_seconds],
        quantile=profile.quantile,
        spawns=[Spawning(seconds=spawn_seconds)],
        service=f"column:{RUN_SECONDS}",
        durations=durations.Column(RUN_SECONDS),
        thin=[1.0],
        seeds=_SEEDS,
        profile=profile,
        strategies=installed().strategies,
        slots=pool.job_slots,
    )


def _fixed_fleet(trace: Trace, pool: Pool, spawn_seconds: float) -> int:
    return fixed_peak(
        study.load_of(_study(trace, pool, spawn_seconds, "peak"), 0, 0),
        sla_seconds=pool.profile.sla_seconds,
        quantile=pool.profile.quantile,
        spawn_seconds=spawn_seconds,
        most=pool.profile.max_workers,
    )


def _simulated(
    label: str,
    pool: Pool,
    trace: Trace,
    spawn_seconds: float,
    strategy: str,
    fixed_workers: int = 0,
) -> list[SimulatedSettings]:
    return [
        SimulatedSettings(
            settings=f"{pool.name}, {label}",
            jobs=len(trace.times),
            hours=row.hours,
            late_share=row.late_share,
            keeps_promise=row.keeps_promise,
            wait_p95=row.wait_p95,
            wait_max=row.wait_max,
            worker_seconds=row.worker_seconds,
            actions=row.actions,
            fixed_workers=fixed_workers,
        )
        for row in study.run(_study(trace, pool, spawn_seconds, strategy))
    ]
