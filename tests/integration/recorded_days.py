"""Two days of an installation as its decider records them, made by the decider's own code.

Jobs arrive as they do at a public service (a tide of the day, noise, sudden crowds), drawn from a
seed. The simulator lets them wait and run; the production core decides, and its notices and the
snapshots that it decided upon are the record: budgets that burn, hosts that are lost, gaps of the
telemetry. The deaths of jobs are added, as workers would store them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from random import Random
from typing import NamedTuple

import numpy as np

from penstock.config import Pool, Profile
from penstock.decider.core.decide import Outcome
from penstock.decider.core.inputs import Rules
from penstock.decider.core.registry import BUILTIN
from penstock.decider.simulator.model.controller import Core, Look, Plan
from penstock.decider.simulator.model.durations import Lognormal
from penstock.decider.simulator.model.engine import POOL, Simulation, Troubles
from penstock.decider.simulator.model.load import Trace, draw
from penstock.decider.simulator.model.looks import Pace
from penstock.decider.simulator.model.spawning import Spawning
from penstock.events.envelope import Event
from penstock.events.job import JobDead, JobError
from penstock.events.scaling import PromiseBurning
from penstock.events.snapshot import PoolSnapshot
from penstock.events.worker import HostJoined, HostLost

INTERVAL_SECONDS = 20.0
"""Between two snapshots: alerts take one that is older than 30 s for unknown."""
MINUTE, HOUR = 60.0, 3_600.0
HOSTS = ("h1", "h2", "h3")
PROMISE = Profile(
    sla_seconds=30.0, quantile=0.9, budget_window_seconds=4 * HOUR, min_workers=2, max_workers=12,
    forecast="off",
)  # fmt: skip
_RULES = Rules(stale_seconds=45.0, lease_seconds=60.0)
_WATCHED = (PromiseBurning, HostLost, HostJoined)
_QUIET_SECONDS = 3 * HOUR
"""At the end nothing happens, so that all that fired has ended."""
_FUNCTIONS = ("shop.load_orders", "shop.send_mail", "shop.render")


class Recorded(NamedTuple):
    """What was stored, in the order of its times.

    Attributes:
        begin: POSIX seconds.
        end: POSIX seconds.
    """

    begin: float
    end: float
    snapshots: list[PoolSnapshot]
    events: list[Event]


class _Recorder:
    """The production core, whose inputs and notices are kept.

    Args:
        silences: host, and times between which it sends nothing, in seconds since the beginning.
    """

    def __init__(self, origin: float, silences: Sequence[tuple[str, float, float]]) -> None:
        pool = Pool(name=POOL, kind="queue", queues=(POOL,), profile=PROMISE)
        self._core = Core(pool, BUILTIN, origin, _RULES, watch=self._keep)
        self._origin, self._silences = origin, silences
        self.snapshots: list[PoolSnapshot] = []
        self.events: list[Event] = []

    def plan(self, look: Look) -> Plan | None:
        """Decides as in production."""
        silent = {host for host, begin, end in self._silences if begin <= look.now < end}
        if look.wakeup is not None:
            self.snapshots.append(look.meter.snapshot(look.now, look.wakeup))
        return self._core.plan(
            Look(
                now=look.now,
                decided_at=look.decided_at,
                wakeup=look.wakeup,
                meter=look.meter,
                fleet=look.fleet,
                hosts=tuple(host for host in look.hosts if host not in silent),
            )
        )

    def _keep(self, outcome: Outcome, decided_at: float) -> None:
        at = datetime.fromtimestamp(self._origin + decided_at, UTC)
        self.events += [
            notice.event(at=at, source="decider", **notice.fields)
            for notice in outcome.notices
            if notice.event in _WATCHED
        ]


def record(origin: datetime, hours: float, seed: int) -> Recorded:
    """What is stored in so many hours; the same for the same seed."""
    random, begin = Random(seed), origin.timestamp()
    seconds = hours * HOUR
    crowds = _spells(random, seconds, 4 * HOUR, (4 * MINUTE, 40 * MINUTE))
    gaps = _spells(random, seconds, 9 * HOUR, (2 * MINUTE, 9 * MINUTE))
    gaps += [(start + 4 * MINUTE, start + 9 * MINUTE) for start, _ in crowds[::2]]
    silences = [
        (host, *spell)
        for host in HOSTS[1:]
        for spell in _spells(random, seconds, 11 * HOUR, (3 * MINUTE, 25 * MINUTE))
    ]
    recorder = _Recorder(begin, silences)
    load = draw(_arrivals(random, begin, seconds, crowds), Lognormal(4.0, 1.0), seed=seed)
    Simulation(
        load,
        recorder,
        spawning=Spawning(seconds=5.0),
        profile=PROMISE,
        seed=seed,
        hosts=HOSTS,
        troubles=Troubles(telemetry_gaps=tuple(gaps)),
        pace=Pace(interval_seconds=INTERVAL_SECONDS, quiet_seconds=INTERVAL_SECONDS),
    ).run()
    events = [*recorder.events, *_deaths(random, begin, seconds)]
    end = begin + seconds + _QUIET_SECONDS
    return Recorded(
        begin,
        end,
        [one for one in recorder.snapshots if one.at.timestamp() <= end],
        sorted((one for one in events if one.at.timestamp() <= end), key=lambda one: one.at),
    )


def _arrivals(
    random: Random, origin: float, seconds: float, crowds: Sequence[tuple[float, float]]
) -> Trace:
    """Jobs of each minute: the tide of the day, and crowds that come at once and go slowly."""
    minutes = int((seconds + _QUIET_SECONDS) / MINUTE)
    rates = [0.5 + 0.35 * math.sin(2 * math.pi * minute / 1_440) for minute in range(minutes)]
    rates = [rate * random.lognormvariate(0.0, 0.15) for rate in rates]
    for begin, end in crowds:
        height = random.uniform(2.0, 8.0)
        first, last = int(begin / MINUTE), int(end / MINUTE)
        for minute in range(first, min(last, minutes)):
            rates[minute] += height * (last - minute) / (last - first)
    return Trace(
        name="two days",
        origin=origin,
        times=np.arange(minutes) * MINUTE,
        counts=np.array(rates) * MINUTE,
        widths=np.full(minutes, MINUTE),
    )


def _spells(
    random: Random, seconds: float, every: float, lasting: tuple[float, float]
) -> list[tuple[float, float]]:
    """Stretches of time, apart from each other, that end before ``seconds``."""
    spells: list[tuple[float, float]] = []
    at = random.uniform(0.3, 1.0) * every
    while (end := at + random.uniform(*lasting)) < seconds:
        spells.append((at, end))
        at = end + random.uniform(0.5, 1.5) * every
    return spells


def _deaths(random: Random, begin: float, seconds: float) -> list[Event]:
    """Jobs that die of some kinds of failure, each kind in fits."""
    deaths: list[Event] = []
    for kind in range(14):
        function = random.choice(_FUNCTIONS)
        error = JobError(kind=f"shop.Fault{kind}", message=f"table {kind} is locked")
        at = random.uniform(0.02, 0.8) * seconds
        for _ in range(random.randint(1, 4)):
            deaths.append(
                JobDead(
                    job_id=f"job-{kind}-{len(deaths)}",
                    at=datetime.fromtimestamp(begin + round(at, 3), UTC),
                    queue=POOL,
                    function=function,
                    error=error,
                    attempt=1,
                )
            )
            at = min(at + random.expovariate(1 / (20 * MINUTE)), seconds)
    return deaths
