"""What a clairvoyant would have spent: nobody who keeps the promise spends less."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.decider.simulating import poisson, scene

from penstock.config.profiles import BY_BATCHES
from penstock.decider.core.registry import BUILTIN
from penstock.decider.simulator.bounds.bound import bound_worker_seconds
from penstock.decider.simulator.model.load import Load
from penstock.decider.simulator.studies import contenders

OTHERS = ("keda:1", "hpa:0.7", "flink", "spark", "peak")


def least(jobs: Load, sla: float = 5.0, late: float = 1e-9, spawn: float = 1.0) -> float:
    return bound_worker_seconds(jobs, sla_seconds=sla, late_share=late, spawn_seconds=spawn)


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
    best = contenders.run("clairvoyant", given_scene)
    assert np.mean(np.array(best.waits) > 5.0) <= 0.05
    assert bound <= best.worker_seconds <= 1.5 * bound
    for name in (*sorted(BUILTIN.keys() - BY_BATCHES), *OTHERS):
        run = contenders.run(name, given_scene)
        if np.mean(np.array(run.waits) > 5.0) <= 0.05:
            assert run.worker_seconds >= bound, name
            assert run.worker_seconds >= best.worker_seconds, name
