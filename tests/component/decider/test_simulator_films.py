"""Films: what the core does with a pool in a quarter of an hour or more of simulated time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.unit.decider.simulating import EXACT, shaped, simulation

from penstock.config import Pool, Profile
from penstock.decider.core.registry import BUILTIN
from penstock.decider.simulator.model.controller import Core
from penstock.decider.simulator.model.engine import HOST, POOL, Run, Troubles
from penstock.decider.simulator.model.load import Load

SLA = 10.0
STRATEGIES = [name for name in ("hybrid", "deadline") if name in BUILTIN]
films = pytest.mark.parametrize("strategy", STRATEGIES)


class Film(NamedTuple):
    """``targets``: workers by the second of the decision."""

    run: Run
    targets: list[tuple[float, int]]

    def late_share(self) -> float:
        return float(np.mean(np.array(self.run.waits) > SLA))

    def between(self, start: float, end: float) -> list[int]:
        return [target for at, target in self.targets if start <= at < end]


def film(
    jobs: Load,
    strategy: str,
    troubles: Troubles | None = None,
    hosts: tuple[str, ...] = (HOST,),
    jumps: tuple[tuple[float, float], ...] = (),
    **profile: Any,
) -> Film:
    settings = {"sla_seconds": SLA, "min_workers": 0, "max_workers": 200, **profile}
    pool = Pool(
        name=POOL,
        kind="queue",
        queues=(POOL,),
        profile=Profile(strategy=strategy, **settings),
    )
    targets: list[tuple[float, int]] = []
    core = Core(
        pool,
        BUILTIN,
        jobs.origin,
        watch=lambda outcome, now: targets.append((now, outcome.decisions[0].target)),
        jumps=jumps,
    )
    run = simulation(jobs, core, hosts=hosts, troubles=troubles, spawning=EXACT).run()
    return Film(run, targets)


@films
def test_steady_load_is_carried_without_hectic(strategy) -> None:
    seen = film(shaped([5.0] * 90), strategy)
    assert seen.late_share() <= 0.05
    settled = seen.between(300, 900)
    assert max(settled) <= 3 * min(settled)


@films
def test_growth_is_followed(strategy) -> None:
    seen = film(shaped([1 + second / 10 for second in range(100)]), strategy)
    assert seen.late_share() <= 0.05
    assert np.mean(seen.between(900, 1000)) > 2 * np.mean(seen.between(100, 200))


@films
def test_a_five_fold_spike_passes(strategy) -> None:
    seen = film(shaped([2.0] * 30 + [10.0] * 30 + [2.0] * 60), strategy)
    assert seen.late_share() <= 0.05
    assert max(seen.between(300, 620)) >= 10
    assert max(seen.between(1000, 1200)) < 10


@films
def test_after_a_drought_the_first_job_wakes_the_pool(strategy) -> None:
    jobs = shaped([3.0] * 10 + [0.0] * 80 + [3.0] * 10)
    seen = film(jobs, strategy)
    assert min(seen.between(600, 900)) == 0
    first = next(index for index, at in enumerate(jobs.arrivals) if at >= 900)
    soon = SLA if strategy == "deadline" else EXACT.seconds + 0.2
    assert seen.run.waits[first] <= soon


@films
def test_load_that_flaps_does_not_make_late_jobs(strategy) -> None:
    seen = film(shaped(([1.0] * 6 + [6.0] * 6) * 8), strategy)
    assert seen.late_share() <= 0.05


@films
def test_days_come_and_go(strategy) -> None:
    """A week of ten-minute days, the last two of them quiet."""
    day = [3 + 3 * np.sin(2 * np.pi * (part - 15) / 60) for part in range(60)]
    seen = film(shaped([*(day * 5), *([0.3] * 120)]), strategy)
    assert seen.late_share() <= 0.05
    assert np.mean(seen.between(3600, 4200)) < np.mean(seen.between(0, 3000)) / 3


@films
def test_a_lost_host_is_made_up_for_on_the_other(strategy) -> None:
    jobs = shaped([5.0] * 60)
    troubles = Troubles(hosts_lost={"a": 300.0})
    seen = film(jobs, strategy, troubles=troubles, hosts=("a", "b"))
    assert seen.run.unstarted == 0
    late = np.array(seen.run.waits) > SLA
    assert late[np.array(jobs.arrivals) > 400].mean() <= 0.05


@films
def test_while_nothing_is_measured_nobody_is_sent_away(strategy) -> None:
    seen = film(shaped([5.0] * 60), strategy, troubles=Troubles(telemetry_gaps=((200.0, 320.0),)))
    before = seen.between(190, 200)[-1]
    assert min(seen.between(200, 320)) >= before


@films
@pytest.mark.parametrize("by_seconds", [3600.0, -3600.0])
def test_a_clock_that_jumps_sends_nobody_away(strategy, by_seconds) -> None:
    seen = film(shaped([5.0] * 60), strategy, jumps=((300.0, by_seconds),))
    assert min(seen.between(300, 600)) >= 4
    assert seen.late_share() <= 0.05
