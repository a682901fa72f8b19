"""What a clairvoyant would have spent: nobody who keeps the promise spends less."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.decider.simulating import load, poisson, scene

from penstock.decider.core.registry import BUILTIN
from penstock.decider.simulator.bound import bound_worker_seconds
from penstock.decider.simulator.contenders import controller
from penstock.decider.simulator.fluid import fluid
from penstock.decider.simulator.load import Load
from penstock.decider.simulator.peak import fixed_peak, late_share

OTHERS = ("keda:1", "hpa:0.7", "flink", "spark", "peak")


def test_work_that_could_be_done_and_work_that_has_to_be() -> None:
    water = fluid(load((1.0, 2.0), (2.0, 2.0)), sla_seconds=3.0, step_seconds=1.0)
    assert water.possible[:6] == pytest.approx([0, 0, 1, 3, 4, 4])
    required = water.possible - water.limit
    assert required[:9] == pytest.approx([0, 0, 0, 0, 0, 1, 3, 4, 4])
    assert list(water.due[:7]) == [0, 0, 0, 0, 1, 1, 0]


def least(jobs: Load, sla: float = 5.0, late: float = 1e-9, spawn: float = 1.0) -> float:
    return bound_worker_seconds(jobs, sla_seconds=sla, late_share=late, spawn_seconds=spawn)


def test_one_job_costs_its_work_and_a_start() -> None:
    assert least(load((3.0, 2.0))) == pytest.approx(3.0)


def test_two_jobs_within_the_promise_share_a_worker() -> None:
    assert least(load((0.0, 2.0), (1.0, 2.0))) == pytest.approx(5.0)


def test_two_jobs_far_apart_need_two_starts_or_the_wait_between() -> None:
    """Gap from the first one's latest end (5 + 2) to the second one's arrival."""
    together = load((0.0, 2.0), (9.0, 2.0))
    assert least(together, spawn=1.0) == pytest.approx(6.0, abs=0.6)
    assert least(together, spawn=10.0) == pytest.approx(2 + 2 + 10 + 2, abs=1.0)


def test_a_tighter_promise_or_a_slower_start_never_costs_less() -> None:
    jobs = poisson(0.4, 200, seed=4)
    by_promise = [least(jobs, sla=sla) for sla in (2, 5, 30)]
    by_spawn = [least(jobs, spawn=spawn) for spawn in (5.0, 1.0, 0.1)]
    by_share = [least(jobs, late=share) for share in (1e-9, 0.01, 0.1)]
    for falling in (by_promise, by_spawn, by_share):
        assert falling == sorted(falling, reverse=True)
        assert falling[-1] >= sum(jobs.services)


@pytest.mark.parametrize("per_second", [0.3, 4.0])
def test_nobody_who_keeps_the_promise_beats_the_clairvoyant(per_second) -> None:
    jobs = poisson(per_second, 300, seed=int(per_second))
    given_scene = scene(jobs, quantile=0.95)
    bound = least(jobs, late=0.05)
    best = given_scene.run(controller("clairvoyant", given_scene))
    assert np.mean(np.array(best.waits) > 5.0) <= 0.05
    assert bound <= best.worker_seconds <= 1.5 * bound
    for name in (*BUILTIN, *OTHERS):
        run = given_scene.run(controller(name, given_scene))
        if np.mean(np.array(run.waits) > 5.0) <= 0.05:
            assert run.worker_seconds >= bound, name
            assert run.worker_seconds >= best.worker_seconds, name


def test_the_fixed_peak_is_the_fewest_that_keep_the_promise() -> None:
    jobs = poisson(4.0, 600, seed=5)
    found = fixed_peak(jobs, sla_seconds=5, quantile=0.95, spawn_seconds=1, most=100)
    assert late_share(jobs, found, 5, 1) <= 0.05 < late_share(jobs, found - 1, 5, 1)
