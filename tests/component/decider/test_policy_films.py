"""Films: what policies do with a pool in minutes to a day of simulated time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.unit.decider.simulating import EXACT, shaped, simulation

from penstock.config import Pool, Profile
from penstock.config.profiles import USUAL_POLICIES
from penstock.decider.core.registry import BUILTIN
from penstock.decider.simulator.model.controller import Core
from penstock.decider.simulator.model.engine import POOL, Run
from penstock.decider.simulator.model.load import Load

SLA = 10.0
HOUR = 3600.0
UNTOLD = tuple(name for name in USUAL_POLICIES if name != "effectiveness")


class Film(NamedTuple):
    """``targets``: workers by the second of the decision. ``told``: events, with the second."""

    run: Run
    targets: list[tuple[float, int]]
    told: list[tuple[float, str, dict[str, Any]]]

    def late_share(self) -> float:
        return float(np.mean(np.array(self.run.waits) > SLA))

    def events(self, name: str) -> list[tuple[float, dict[str, Any]]]:
        return [(at, fields) for at, event, fields in self.told if event == name]


def film(jobs: Load, slowing: Any = None, **profile: Any) -> Film:
    settings = {"sla_seconds": SLA, "min_workers": 0, "max_workers": 400, "strategy": "hybrid"}
    settings |= profile
    pool = Pool(name=POOL, kind="queue", queues=(POOL,), profile=Profile(**settings))
    targets: list[tuple[float, int]] = []
    told: list[tuple[float, str, dict[str, Any]]] = []

    def watch(outcome: Any, now: float) -> None:
        targets.append((now, outcome.decisions[0].target))
        told.extend((now, each.event.__name__, each.fields) for each in outcome.notices)

    core = Core(pool, BUILTIN, jobs.origin, watch=watch)
    run = simulation(jobs, core, spawning=EXACT, slowing=slowing).run()
    return Film(run, targets, told)


def then(first: Load, second: Load) -> Load:
    """One load after the other."""
    after = first.duration_seconds
    return Load(
        origin=first.origin,
        arrivals=[*first.arrivals, *(at + after for at in second.arrivals)],
        services=[*first.services, *second.services],
        duration_seconds=after + second.duration_seconds,
    )


# --- effectiveness -------------------------------------------------------------------------------
def ten_at_a_time(running: int) -> float:
    """A database that ten jobs use up."""
    return max(1.0, running / 10)


MORE_THAN_TEN = shaped([5.0] * 18 + [14.0] * 30)


def test_workers_that_only_slow_each_other_down_are_not_added() -> None:
    without = film(MORE_THAN_TEN, ten_at_a_time, policies=UNTOLD)
    seen = film(MORE_THAN_TEN, ten_at_a_time)
    (first, fields), *_ = seen.events("ScalingIneffective")
    assert 180 < first < 400
    assert fields["job_seconds"] > 4 * fields["job_seconds_before"]
    held = [target for at, target in seen.targets if first < at < first + 200]
    assert max(held) == fields["held_at"]
    assert seen.run.worker_seconds < 0.75 * without.run.worker_seconds
    assert seen.run.ended_at <= 1.05 * without.run.ended_at


def test_it_is_tried_again_after_a_while_a_little() -> None:
    seen = film(shaped([5.0] * 18 + [14.0] * 60), ten_at_a_time)
    (first, fields), *_ = seen.events("ScalingIneffective")
    trial = [target for at, target in seen.targets if first + 300 < at]
    assert fields["held_at"] < max(trial) <= 2.25 * fields["held_at"]


def test_when_the_bottleneck_is_gone_it_grows_again() -> None:
    """The database becomes ten times as fast while adding is held."""
    moment = {"running": ten_at_a_time}
    jobs = shaped([5.0] * 18 + [14.0] * 12 + [40.0] * 60)
    begun = 0

    def slowing(running: int) -> float:
        nonlocal begun
        begun += 1
        return moment["running"](running) if begun < 4000 else 1.0

    seen = film(jobs, slowing)
    assert seen.events("ScalingIneffective")
    assert seen.run.unstarted == 0
    late = np.array(seen.run.waits)[np.array(jobs.arrivals) > 800]
    assert np.mean(late > SLA) <= 0.05


LONGER = then(shaped([5.0] * 40), shaped([5.0] * 60, job_seconds=6.0, seed=9))
INNOCENT = {
    "steady": (shaped([8.0] * 90), {}),
    "noise": (shaped([8.0] * 90, cv=4), {}),
    "a rise": (shaped([5.0] * 18 + [30.0] * 60), {}),
    "a burst": (shaped([2.0] * 30 + [60.0] * 30 + [2.0] * 30, cv=2), {}),
    "a burst against the maximum": (shaped([2.0] * 30 + [60.0] * 30), {"max_workers": 30}),
    "a burst that grows and grows": (shaped([1 + step / 2 for step in range(90)], cv=2), {}),
    "longer jobs": (LONGER, {}),
    "longer jobs against the maximum": (LONGER, {"max_workers": 25}),
}


@pytest.mark.parametrize("strategy", ["hybrid", "deadline"])
@pytest.mark.parametrize("name", INNOCENT)
def test_there_is_no_false_alarm(name, strategy) -> None:
    jobs, profile = INNOCENT[name]
    profile = {"strategy": strategy, "policies": USUAL_POLICIES, **profile}
    with_it, without = film(jobs, **profile), film(jobs, **{**profile, "policies": UNTOLD})
    assert with_it.events("ScalingIneffective") == []
    assert with_it.targets == without.targets


def test_a_little_slowing_is_no_reason_to_stop() -> None:
    jobs = shaped([5.0] * 18 + [20.0] * 60)
    seen = film(jobs, lambda running: max(1.0, running / 10) ** 0.5)
    assert seen.events("ScalingIneffective") == []
    assert seen.run.unstarted == 0


# --- the others ----------------------------------------------------------------------------------
FLAPPING = shaped(([1.0] * 3 + [8.0] * 3) * 30)


def test_a_flap_budget_makes_fewer_turns_and_no_more_late_jobs() -> None:
    quick = {"scale_down_cooldown_seconds": 0.0, "scale_down_share": 1.0}
    free = film(FLAPPING, policies=("keep-busy",), **quick)
    calm = film(
        FLAPPING,
        policies=("keep-busy", "flap-budget"),
        policy_options={"flap-budget": {"reversals_per_hour": 6}},
        **quick,
    )
    assert calm.run.reversals < free.run.reversals / 3
    assert calm.late_share() <= free.late_share()


def test_break_even_costs_at_most_twice_and_spares_starts() -> None:
    quick = {"scale_down_cooldown_seconds": 0.0, "scale_down_share": 1.0}
    free = film(FLAPPING, policies=("keep-busy",), **quick)
    even = film(FLAPPING, policies=("keep-busy", "break-even"), **quick)
    assert even.run.actions < free.run.actions
    assert even.run.worker_seconds < 2 * free.run.worker_seconds


def test_a_budget_is_used_up_gently() -> None:
    jobs = shaped([0.8] * 9, bin_seconds=600.0, job_seconds=10.0)
    capped = film(
        jobs,
        policies=("keep-busy", "budget-cap"),
        policy_options={"budget-cap": {"worker_hours_per_day": 8}},
    )
    spent = sum(
        target * (later - at) / HOUR for (at, target), (later, _) in pairwise(capped.targets)
    )
    assert 5 < spent <= 8
    assert len(capped.events("BudgetCapReached")) == 1
    early, late = (
        [target for at, target in capped.targets if start <= at < start + 600]
        for start in (300, 4800)
    )
    assert max(early) >= 7
    assert 1 <= max(late) <= 4


def test_a_pool_that_is_only_advised_is_told_of_and_left_alone() -> None:
    seen = film(shaped([3.0] * 12), advisor=True)
    assert max(target for _, target in seen.targets) > 3
    assert seen.run.worker_seconds == 0
    assert seen.events("SlaBreached")
