"""A pool's arrivals and run times, read back from the event log, for the simulator."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from penstock.bus import lookback
from penstock.bus.protocol import Bus
from penstock.bus.since import first_since
from penstock.cli.scaling.recorded_rounds import Span
from penstock.config import Pool
from penstock.decider.replay.stretches import installed
from penstock.decider.simulator.model import durations
from penstock.decider.simulator.model.load import Trace
from penstock.decider.simulator.model.spawning import Spawning
from penstock.decider.simulator.studies import study
from penstock.decider.simulator.studies.study import SimulationResult
from penstock.events.job import JOB_EVENTS, JobCompleted, JobDispatched
from penstock.events.subjects import Subjects

RUN_SECONDS = "run_seconds"
_SEEDS = 3


class SimulatedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One pool's settings, simulated over the arrivals of the log; waits in seconds."""

    settings: str
    jobs: int
    late_share: float
    wait_p95: float
    wait_max: float
    worker_seconds: float
    actions: float


async def read(bus: Bus, subjects: Subjects, span: Span, pool: Pool) -> Trace | None:
    """The times at which jobs of a pool could start, with their run times.

    Args:
        bus: a connection.
        subjects: of the installation.
        span: part of the event log.
        pool: whose queues count.

    Returns:
        Jobs that have not completed run for the mean of the others; None where none has completed.
    """
    arrived, ran = dict[str, float](), dict[str, float]()
    stream = subjects.events_stream
    for name in (JobDispatched.__name__, JobCompleted.__name__):
        subject = subjects.events("job", "*", name)
        last = await bus.last(stream, subject)
        start = await first_since(bus, stream, subject, span.since) if span.since else 1
        if last is None or start > last.sequence:
            continue
        async for stored in lookback.between(bus, stream, subject, start, last.sequence):
            event = JOB_EVENTS.decode(stored.body)
            if isinstance(event, JobDispatched) and event.queue in pool.queues:
                if span.until is None or stored.at <= span.until:
                    arrived[event.job_id] = (event.due_at or stored.at).timestamp()
            elif isinstance(event, JobCompleted) and event.job_id in arrived:
                ran[event.job_id] = event.run_seconds
    return _trace(pool.name, arrived, ran) if ran else None


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


def simulate(trace: Trace, pools: dict[str, Pool], spawn_seconds: float) -> list[SimulatedSettings]:
    """Simulates the same arrivals under several settings.

    Args:
        trace: arrivals and run times.
        pools: settings by a name for them.
        spawn_seconds: time that a worker takes to start.
    """
    return [
        _simulated(label, pool, trace, row)
        for label, pool in pools.items()
        for row in _rows(trace, pool, spawn_seconds)
    ]


def _rows(trace: Trace, pool: Pool, spawn_seconds: float) -> list[SimulationResult]:

    profile = pool.profile
    question: Any = study.Study(
        traces=[trace],
        names=[profile.strategy],
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
    return list(study.run(question))


def _simulated(label: str, pool: Pool, trace: Trace, row: SimulationResult) -> SimulatedSettings:
    return SimulatedSettings(
        settings=f"{pool.name}, {label}",
        jobs=len(trace.times),
        late_share=row.late_share,
        wait_p95=row.wait_p95,
        wait_max=row.wait_max,
        worker_seconds=row.worker_seconds,
        actions=row.actions,
    )
