"""No number or time of a stored event keeps a rule from being read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product

import pytest

from penstock.console.core.alerts import reading, rules
from penstock.console.core.alerts.backtest import backtest
from penstock.console.core.alerts.reading import read, read_all
from penstock.console.core.alerts.rules import Configuration, Rule
from penstock.console.core.alerts.world import World
from penstock.events.envelope import Event
from penstock.events.health import HealthChanged
from penstock.events.job import JobDead, JobError
from penstock.events.scaling import (
    BudgetCapReached,
    LeaderChanged,
    PromiseBurning,
    Reason,
    ScalingDecisionMade,
    SlaBreachPredicted,
)
from penstock.events.snapshot import Budget, EndedRate, HostSnapshot, PoolSnapshot, Quantiles
from penstock.events.worker import HostJoined, HostLost, WorkerCrashLooping, WorkerStuck

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
NUMBERS = (0.0, -0.0, 5e-324, 1e308, -1e308, float("inf"), float("-inf"), float("nan"))
TIMES = (
    datetime(1, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC), NOW,
    datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
)  # fmt: skip
CONDITIONS: tuple[rules.Condition, ...] = (
    rules.Burn(pace="slow"), rules.PredictedBreach(), rules.HeldByCapacity(), rules.BudgetCap(),
    rules.DeadLetters(when="first-seen"), rules.DeadLetters(when="returned"),
    rules.DeadLetters(when="surge"), rules.QueueAge(), rules.HostLost(), rules.CrashLoop(),
    rules.Stuck(), rules.Health(), rules.NoLeader(), rules.Absence(source="pool:*"),
    rules.Absence(source="host:*"),
    rules.Expression(text="avg(burn_rate, 5m) / waiting > promise * pickup_p99 - arrivals"),
)  # fmt: skip


def facts(number: float, whole: int, at: datetime) -> Iterator[Event]:
    """Every event that rules look at, with these values wherever a sender may choose them."""
    for left in (number, 0.5):
        budget = Budget(
            sla_seconds=number, quantile=number, window_seconds=number, jobs=whole, late=whole,
            remaining_share=left, burn_rate_short=number, burn_rate_long=20.0,
        )  # fmt: skip
        yield PromiseBurning(pool="p", at=at, pace="fast", budget=budget)
        quantiles = Quantiles(
            count=whole, mean_seconds=number, p50_seconds=number, p95_seconds=number,
            p99_seconds=number,
        )  # fmt: skip
        yield PoolSnapshot(
            pool="p", at=at, queues=("p",), waiting=whole, oldest_waiting_seconds=number,
            pickup=quantiles, arrival_per_second=number, budget=budget,
            ended=EndedRate(finished_per_minute=number, failed_per_minute=number),
        )  # fmt: skip
    yield SlaBreachPredicted(
        pool="p", at=at, sla_seconds=number, predicted_pickup_seconds=number, waiting=whole,
        decision_id="d",
    )  # fmt: skip
    held = Reason(step="capacity", rule="r", workers=-whole, text="")
    yield ScalingDecisionMade(
        pool="p", at=at, current=whole, target=whole, strategy="h", sla_seconds=number,
        predicted_pickup_seconds=number,
        reasons=(Reason(step="fair-share", rule="r", workers=whole, text=""), held),
    )  # fmt: skip
    yield BudgetCapReached(
        pool="p", at=at, spent_worker_hours=number, worker_hours_per_day=number, wanted=whole,
        workers=whole,
    )  # fmt: skip
    for _ in range(2):
        yield JobDead(job_id="j", queue="q", at=at, error=JobError(kind="k", message=""))
    yield HostJoined(host="h", at=at, cpu_cores=number, memory_bytes=whole)
    yield HostLost(host="h", at=at, silent_seconds=number)
    yield HostSnapshot(host="g", at=at, cpu_cores=number, memory_bytes=whole)
    yield WorkerCrashLooping(
        worker="w", host="h", pool="p", at=at, failures=whole, backoff_seconds=number
    )
    yield WorkerStuck(
        worker="w", host="h", pool="p", pid=1, job_id="j", queue="q", at=at, score=number,
        heartbeat=number, run_time=number, memory=number, process=number, strategy="s",
    )  # fmt: skip
    yield HealthChanged(component="c", at=at, state="down", before="up")
    yield LeaderChanged(at=at, leader="d", epoch=whole)


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda one: type(one).__name__)
def test_every_rule_is_read_whatever_the_facts_are(condition: rules.Condition) -> None:
    one = Rule(id="r", name="r", condition=condition)  # type: ignore[arg-type]
    for number, whole, at in product(NUMBERS, (0, 2**63 - 1, -(2**63)), TIMES):
        for stale_seconds in (30.0, float("inf")):
            world = World(stale_seconds)
            world.take_all(facts(number, whole, at))
            for pool in world.pools.values():
                pool.measured_at = NOW.timestamp()
            for observation in read(one, world, NOW.timestamp()).observations:
                assert len(observation.text) < 2_000


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda one: type(one).__name__)
def test_every_rule_is_tested_over_such_facts(condition: rules.Condition) -> None:
    one = Rule(id="r", name="r", condition=condition)  # type: ignore[arg-type]
    for number in NUMBERS:
        end = NOW.timestamp()
        backtest(one, facts(number, 2**63 - 1, NOW), end - 3_600, end)


def test_a_rule_that_cannot_be_evaluated_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise OverflowError("too large")

    monkeypatch.setattr(reading, "_KINDS", {**reading._KINDS, rules.Burn: fails})
    named = {
        "bad": Rule(id="bad", name="bad", condition=rules.Burn()),
        "good": Rule(id="good", name="good", condition=rules.HostLost()),
    }
    readings, problems = read_all(Configuration(rules=named, channels=frozenset()), World(), 0.0)
    assert problems == {"bad": "OverflowError: too large"}
    assert (readings["bad"].is_known, readings["good"].is_known) == (False, True)
