"""Workers with several slots: what calculates with run times counts slots, the plan counts workers,
and with one slot nothing is changed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.unit.decider.given import inputs, one_round, pool, snapshot, state, took
from tests.unit.decider.simulating import EXACT, poisson

from penstock.config import Pool, Profile
from penstock.decider.core import options
from penstock.decider.core.decide import decide
from penstock.decider.core.pickup import outlook
from penstock.decider.core.registry import BUILTIN
from penstock.decider.core.slots import counts_slots, snapshot_in_slots
from penstock.decider.core.strategy import Demand, StrategyInputs, whole
from penstock.decider.simulator.studies.contenders import Scene, UnknownContender, controller
from penstock.events.snapshot import PoolSnapshot, SpawnFit

NOW = 1_000_000.0
IN_SLOTS = ["deadline", "hybrid", "simple_rate", "backlog_only", "conservative", "throughput"]
LOAD = {"arrival_per_second": 130.0, "job_seconds": 1.0, "waiting": 40, "throughput_per_second": 99}


def with_slots(slots: int, **profile: Any) -> Pool:
    return msgspec.structs.replace(pool(**profile), slots=slots)


def demand(given_pool: Pool, measured: PoolSnapshot, current: int = 0) -> Demand:
    asked = StrategyInputs(
        pool=given_pool, snapshot=measured, age_seconds=0.5, current=current, now=NOW
    )
    return options.demand(given_pool.profile.strategy, BUILTIN, asked)


def test_the_strategies_that_calculate_with_run_times_count_slots() -> None:
    assert {name for name, each in BUILTIN.items() if counts_slots(each)} == {*IN_SLOTS}


@pytest.mark.parametrize("name", IN_SLOTS)
@given(slots=some.integers(2, 300), ready=some.integers(0, 5), used=some.floats(0, 1))
def test_a_demand_for_slots_is_rounded_up_to_workers(
    name: str, slots: int, ready: int, used: float
) -> None:
    """As the same strategy demands where each slot is a worker."""
    idle = round(ready * slots * used)
    several = snapshot(
        **LOAD, workers_ready=ready, workers_idle=0,
        slots=slots, slots_ready=ready * slots, slots_idle=idle,
    )  # fmt: skip
    single = snapshot(**LOAD, workers_ready=ready * slots, workers_idle=idle)
    as_workers = demand(pool(strategy=name, max_workers=1000 * slots), single, ready * slots)
    found = demand(with_slots(slots, strategy=name), several, ready)
    if name != "deadline":  # weighs what it costs to stop a worker, here of several slots
        assert found.workers == as_workers.workers / slots
    assert found.reasons[-1].workers == whole(found.workers)
    assert f"with {slots} slots each; counted in slots: " in found.reasons[-1].text


@pytest.mark.parametrize("name", sorted(BUILTIN.keys() - {*IN_SLOTS, "combined", "schedule"}))
def test_the_strategies_that_count_workers_are_told_nothing_of_slots(name: str) -> None:
    measured = snapshot(waiting=40, workers_ready=2, slots=50, slots_ready=100, slots_idle=60)
    several = with_slots(50, strategy=name, min_workers=3)
    assert demand(several, measured, 2) == demand(pool(strategy=name, min_workers=3), measured, 2)


def test_a_plug_in_that_says_nothing_counts_workers() -> None:
    class Own:
        name = "own"

        def demand(self, inputs: StrategyInputs) -> Demand:
            assert (inputs.slots, inputs.current, inputs.snapshot.workers_ready) == (1, 3, 2)
            return Demand(workers=4)

    asked = StrategyInputs(
        pool=with_slots(10, strategy="own"),
        snapshot=snapshot(workers_ready=2, slots=10, slots_ready=20, slots_idle=20),
        age_seconds=0.5, current=3, now=NOW,
    )  # fmt: skip
    assert options.demand("own", {"own": Own()}, asked) == Demand(workers=4)


def test_a_snapshot_in_slots() -> None:
    fit = SpawnFit(
        mean_seconds=1, p95_seconds=2, p99_seconds=3, contention_seconds=0.5, most_together=4
    )
    measured = snapshot(
        workers_ready=2, workers_idle=1, slots=10, slots_ready=20, slots_idle=13, spawn_fit=fit
    )
    found = snapshot_in_slots(measured, 10)
    assert (found.workers_ready, found.workers_idle) == (20, 13)
    assert found.spawn_fit is not None
    assert (found.spawn_fit.contention_seconds, found.spawn_fit.most_together) == (0.05, 40)
    older = snapshot_in_slots(snapshot(workers_ready=2, workers_idle=1), 10)
    assert (older.workers_ready, older.workers_idle) == (20, 10)
    assert snapshot_in_slots(measured, 1) is measured


def test_the_expected_pickup_is_that_of_the_slots() -> None:
    """100 jobs of 10 s in front: one worker of 100 slots takes them within one round."""
    measured = snapshot(
        job_seconds=10.0, waiting=100, oldest_waiting_seconds=1.0, arrival_per_second=1.0,
        workers_ready=1, slots=100, slots_ready=100, slots_idle=0,
    )  # fmt: skip
    outcome = one_round(with_slots(100, min_workers=1, max_workers=1), measured)
    predicted = outcome.decisions[0].predicted_pickup_seconds
    assert predicted == outlook(snapshot_in_slots(measured, 100), 100, 30.0).arriving_seconds
    assert predicted is not None
    assert predicted < 11


def test_workers_that_the_running_jobs_do_not_fill_may_go() -> None:
    """Ten workers with one job each in a hundred slots: `keep-busy` keeps one."""
    measured = snapshot(
        arrival_per_second=1.0, job_seconds=10.0, running=10, workers_ready=10, workers_idle=0,
        slots=100, slots_ready=1000, slots_idle=990,
    )  # fmt: skip
    kept = with_slots(100, policies=("keep-busy",))
    outcome = one_round(kept, measured, state(emails={"a": 10}))
    assert outcome.decisions[0].target == 1
    alone = snapshot(
        arrival_per_second=1.0, job_seconds=10.0, running=10, workers_ready=10, workers_idle=0
    )
    outcome = one_round(pool(policies=("keep-busy",)), alone, state(emails={"a": 10}))
    assert outcome.decisions[0].target == 10


def test_a_decision_is_computed_equal_again() -> None:
    measured = snapshot(
        **LOAD, workers_ready=1, slots=50, slots_ready=50, slots_idle=0, oldest_waiting_seconds=2.0,
        spawn=took(1.0),
    )  # fmt: skip
    given_pool = with_slots(50, strategy="deadline", sla_seconds=5)
    round_of = inputs([given_pool], [measured])
    again = msgspec.json.decode(msgspec.json.encode(measured), type=PoolSnapshot)
    first = decide(state(), round_of, NOW)
    assert first == decide(state(), inputs([given_pool], [again]), NOW)
    reason = first.decisions[0].reasons[0]
    assert reason.workers == 1
    assert reason.text.startswith("1 worker with 50 slots each; counted in slots: 12 wanted by ")


def test_a_reason_names_slots_and_workers() -> None:
    measured = snapshot(
        arrival_per_second=1.0, job_seconds=10.0, running=14, workers_ready=2, workers_idle=0,
        slots=20, slots_ready=40, slots_idle=26,
    )  # fmt: skip
    outcome = one_round(with_slots(20, strategy="deadline"), measured, state(emails={"a": 2}))
    reason = outcome.decisions[0].reasons[0]
    assert reason.workers == 1
    assert reason.text.startswith("1 worker with 20 slots each; counted in slots: 14 wanted by ")
    assert "26 others are not expected to be needed" in reason.text


# --- simulated ------------------------------------------------------------------------------------
def scene(slots: int) -> Scene:
    profile = Profile(sla_seconds=5.0, min_workers=0, max_workers=1000)
    return Scene(
        load=poisson(50.0, 120), profile=profile, strategies=BUILTIN, spawning=EXACT, seed=0,
        slots=slots,
    )  # fmt: skip


def test_the_simulated_pool_keeps_its_promise_with_a_share_of_the_workers() -> None:
    several = scene(25).run(controller("deadline", scene(25)))
    single = scene(1).run(controller("deadline", scene(1)))
    late = sum(wait > 5.0 for wait in several.waits) / len(several.waits)
    assert late <= 0.05
    assert not several.unstarted
    assert several.worker_seconds < single.worker_seconds / 5


def test_baselines_that_count_single_workers_are_refused() -> None:
    with pytest.raises(UnknownContender, match="slots = 25"):
        controller("keda:2", scene(25))
