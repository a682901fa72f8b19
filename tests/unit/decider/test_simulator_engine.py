"""The simulated pool: jobs in line, workers that start and end, what they cost."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.unit.decider.simulating import EXACT, Steps, load, poisson, scene, simulation

from penstock.decider.simulator.model.engine import DECISION_SECONDS, Troubles
from penstock.decider.simulator.model.looks import Pace
from penstock.decider.simulator.model.spawning import Spawning
from penstock.decider.simulator.studies.contenders import controller


def test_an_example_computed_by_hand() -> None:
    """One worker, commanded at 0.05, is ready at 1.05 and takes one job after the other."""
    jobs = load((0.0, 1.0), (0.1, 1.0), (3.0, 1.0))
    run = simulation(jobs, Steps((0, 1))).run()
    assert run.waits == pytest.approx([1.05, 1.95, 0.05])
    assert run.ended_at >= 4.05
    assert run.worker_seconds == pytest.approx(run.ended_at - DECISION_SECONDS)
    assert (run.actions, run.reversals, run.unstarted) == (1, 0, 0)


def test_a_busy_worker_that_is_not_planned_any_more_finishes_its_job() -> None:
    jobs = load((0.0, 10.0), (0.0, 10.0), duration=30.0)
    run = simulation(jobs, Steps((0, 2), (4.5, 0), (20, 1))).run()
    assert run.waits == pytest.approx([1.05, 1.05])
    both_until_their_end = 2 * 11.0
    assert run.worker_seconds == pytest.approx(both_until_their_end + run.ended_at - 20.05)
    assert (run.actions, run.reversals) == (3, 2)


def test_who_is_still_starting_goes_first_and_is_paid_until_then() -> None:
    jobs = load((0.0, 1.0), duration=10.0)
    slow = Spawning(seconds=5.0, contention=0.0, cv=0.0)
    run = simulation(jobs, Steps((0, 1), (1.9, 3), (2.9, 1)), spawning=slow).run()
    assert run.waits == pytest.approx([5.05])
    assert run.worker_seconds == pytest.approx(2 * 1.0 + run.ended_at - 0.05)


def test_workers_that_start_together_take_longer() -> None:
    jobs = load((0.0, 100.0), (0.0, 100.0), (0.0, 100.0))
    shared = Spawning(seconds=1.0, contention=0.5, cv=0.0)
    run = simulation(jobs, Steps((0, 3)), spawning=shared).run()
    assert run.waits == pytest.approx([1.05, 1.55, 2.05])


def test_a_job_that_nobody_ever_takes_is_late_by_its_age() -> None:
    run = simulation(load((0.0, 1.0)), Steps()).run()
    assert run.unstarted == 1
    assert run.waits == [run.ended_at]
    assert run.worker_seconds == 0


def test_a_first_job_is_looked_at_at_once() -> None:
    seen = Steps()
    simulation(load((5.5, 1.0), duration=6.0), seen).run()
    wakeups = [(look.wakeup, look.now) for look in seen.looks if look.wakeup == "first-job"]
    assert wakeups == [("first-job", pytest.approx(5.505))]


@given(
    jobs=some.lists(some.tuples(some.floats(0, 60), some.floats(0.01, 20)), max_size=40),
    steps=some.lists(some.tuples(some.floats(0, 80), some.integers(0, 6)), max_size=8),
    slots=some.integers(1, 4),
)
def test_every_job_starts_once_and_no_worker_is_used_before_it_is_ready(jobs, steps, slots) -> None:
    given_load = load(*sorted(jobs))
    steps = [*sorted(steps), (90.0, 2)]
    story = simulation(given_load, Steps(*steps), slots=slots)
    fleet, begun = story._fleet, []
    take = fleet.take

    def watched(job, now):
        slot = take(job, now)
        if slot is not None:
            begun.append(job)
            assert now >= slot.worker.asked_at + EXACT.seconds - 1e-9
        return slot

    fleet.take = watched
    run = story.run()
    assert begun == list(range(len(jobs)))  # first in, first out
    assert min(run.waits, default=0) >= 0
    assert run.unstarted == 0
    assert run.worker_seconds >= sum(given_load.services) / slots - 1e-6
    assert (fleet.idle_slots, fleet.idle) == (fleet.ready * slots, fleet.ready)


@pytest.mark.parametrize("name", ["hybrid", "keda:2", "spark", "flink"])
def test_the_same_seed_gives_the_same_run(name) -> None:
    jobs = poisson(2.0, 120)
    first, second = (scene(jobs).run(controller(name, scene(jobs))) for _ in range(2))
    assert first == second


def test_jobs_of_a_lost_host_run_again_elsewhere() -> None:
    class Two(Steps):
        def plan(self, look):
            return dict.fromkeys(look.hosts, 1)

    jobs = load((0.0, 10.0), (0.0, 10.0), (11.1, 10.0), duration=40.0)
    troubles = Troubles(hosts_lost={"a": 5.0})
    run = simulation(jobs, Two(), hosts=("a", "b"), troubles=troubles).run()
    assert run.waits == pytest.approx([1.05, 1.05, 9.95])  # the third after both on b
    assert run.ended_at >= 21.05  # b's own job until 11.05, then the lost one
    assert run.worker_seconds == pytest.approx(5 - 0.05 + run.ended_at - 0.05)


def test_the_core_keeps_its_plan_while_nothing_is_measured() -> None:
    jobs = poisson(5.0, 240)
    deaf = Troubles(telemetry_gaps=((100.0, 160.0),))
    given_scene, planned = scene(jobs, strategy="hybrid"), []
    core = controller("hybrid", given_scene)
    core._watch = lambda outcome, now: planned.append((now, outcome.decisions[0].target))
    simulation(jobs, core, troubles=deaf).run()
    while_deaf = {target for now, target in planned if 106 < now < 160}
    assert len(while_deaf) == 1
    assert while_deaf > {0} or min(while_deaf) > 0


def test_looking_seldom_at_a_pool_at_rest_changes_nothing() -> None:
    jobs = load(*[(60.0 * number, 5.0) for number in range(20)])
    found = []
    for pace in (Pace(), Pace(quiet_seconds=60.0)):
        quiet = msgspec.structs.replace(scene(jobs, sla_seconds=20.0), pace=pace)
        run = quiet.run(controller("deadline", quiet))
        found.append((run.actions, run.worker_seconds))
    assert found[0] == pytest.approx(found[1], rel=0.05)
