"""The least that a promise can cost, by hand."""

from __future__ import annotations

import pytest
from tests.unit.decider.simulating import load, poisson

from penstock.decider.simulator.bounds import bound
from penstock.decider.simulator.bounds.bound import bound_worker_seconds
from penstock.decider.simulator.bounds.fluid import fluid
from penstock.decider.simulator.bounds.peak import fixed_peak, late_share
from penstock.decider.simulator.model.load import Load


def test_work_that_could_be_done_and_work_that_has_to_be() -> None:
    water = fluid(load((1.0, 2.0), (2.0, 2.0)), sla_seconds=3.0, step_seconds=1.0)
    assert water.possible[:6] == pytest.approx([0, 0, 1, 3, 4, 4])
    required = water.possible - water.limit
    assert required[:9] == pytest.approx([0, 0, 0, 0, 0, 1, 3, 4, 4])
    assert list(water.due[:7]) == [0, 0, 0, 0, 1, 1, 0]


def test_the_grid_is_bounded_however_long_the_load_and_the_promise() -> None:
    jobs = load((0.0, 2.0), (3e7, 2.0))
    for sla_seconds in (0.5, 3e7):
        water = fluid(jobs, sla_seconds=sla_seconds, step_seconds=0.25)
        assert len(water.due) < 4_000_010
        assert water.possible[-1] == pytest.approx(4.0)
        assert water.due.sum() == 2


def test_stretches_in_groups_have_the_bound_of_all_at_once(monkeypatch) -> None:
    jobs = load(*((9.0 * number, 2.0) for number in range(3000)))
    at_once = least(jobs)
    monkeypatch.setattr(bound, "_TOGETHER", 4)
    assert least(jobs) == at_once


def test_a_fixed_fleet_for_one_job_is_one_worker() -> None:
    one = load((0.0, 2.0))
    assert fixed_peak(one, sla_seconds=5, quantile=0.95, spawn_seconds=1, most=9) == 1


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


def test_the_fixed_peak_is_the_fewest_that_keep_the_promise() -> None:
    jobs = poisson(4.0, 300, seed=5)
    found = fixed_peak(jobs, sla_seconds=5, quantile=0.95, spawn_seconds=1, most=100)
    assert late_share(jobs, found, 5, 1) <= 0.05 < late_share(jobs, found - 1, 5, 1)
