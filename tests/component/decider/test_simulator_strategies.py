"""Every strategy that ships, in simulated time: the jobs get done; `schedule` goes by its clock."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import msgspec
import pytest
from tests.unit.decider.simulating import load, poisson, scene, simulation

from penstock.config import Pool, Profile
from penstock.config.profiles import BY_BATCHES
from penstock.decider.core.decide import Outcome
from penstock.decider.core.registry import BUILTIN
from penstock.decider.simulator.model.controller import Core
from penstock.decider.simulator.model.engine import POOL, Run
from penstock.decider.simulator.model.load import Load
from penstock.decider.simulator.studies.contenders import UnknownContender, check, controller

SETTINGS = {
    "queue_size": {"high_watermark": 10, "low_watermark": 2, "step_seconds": 5},
    "wait_time": {"step_seconds": 5},
    "throughput": {"jobs_per_minute": 200},
}


def films(jobs: Load, profile: Profile) -> tuple[Run, list[tuple[float, int]]]:
    """A run, and each change of the number: when, and to what."""
    steps: list[tuple[float, int]] = []

    def watch(outcome: Outcome, now: float) -> None:
        target = outcome.decisions[0].target
        if not steps or steps[-1][1] != target:
            steps.append((now, target))

    pool = Pool(name=POOL, kind="queue", queues=(POOL,), profile=profile)
    return simulation(jobs, Core(pool, BUILTIN, jobs.origin, watch=watch)).run(), steps


@pytest.mark.parametrize("name", sorted(BUILTIN.keys() - BY_BATCHES))
def test_all_jobs_get_done(name) -> None:
    least = 3 if name == "fixed" else 0
    found = scene(poisson(2.0, seconds=200), options=SETTINGS, min_workers=least)
    done = found.run(controller(name, found))
    assert done.unstarted == 0
    assert done.worker_seconds > 0
    assert done.ended_at < 600


@pytest.mark.parametrize("name", sorted(BY_BATCHES))
def test_a_strategy_of_streaming_queries_is_refused(name) -> None:
    with pytest.raises(UnknownContender, match="knows batches of streaming queries"):
        check(name, BUILTIN)


def test_burst_workers_come_in_one_step_and_go_when_the_queue_is_empty() -> None:
    """100 jobs at once, two workers that are always there, ten jobs a worker."""
    jobs = load(*((10.0, 1.0) for _ in range(100)), duration=60.0)
    profile = Profile(
        strategy="jobs_per_worker", min_workers=2, max_workers=50, policies=("keep-busy",)
    )
    done, steps = films(jobs, profile)
    assert [workers for _, workers in steps][:2] == [2, 10]
    assert steps[1][0] < 10.2
    empty_at = 10.0 + max(done.waits)
    assert steps[-1][1] == 2
    assert empty_at < steps[-1][0] < empty_at + 3  # its last job ends first
    assert all(workers == 10 for at, workers in steps if 10.2 < at < empty_at)


def test_schedule_goes_by_the_simulated_clock() -> None:
    """From 8:30 to 9:30 of a Tuesday in Copenhagen, a job now and then."""
    begins = datetime(2026, 10, 20, 8, 30, tzinfo=ZoneInfo("Europe/Copenhagen")).timestamp()
    jobs = load(*((60.0 * minute, 1.0) for minute in range(60)), duration=3600.0)
    profile = Profile(
        strategy="schedule",
        min_workers=0,
        max_workers=50,
        options={"schedule": {"time_zone": "Europe/Copenhagen"}},
    )
    done, steps = films(msgspec.structs.replace(jobs, origin=begins), profile)
    assert [workers for _, workers in steps] == [6, 8]
    assert steps[0][0] < 2
    assert 1800 - 2.5 < steps[1][0] < 1800  # a start takes a second
    assert max(done.waits[1:]) == 0
