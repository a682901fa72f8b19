"""What a pool in advisor mode demands of an autoscaler outside, which has hosts of its own."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.decider.given import NOW, host, inputs, one_round, pool, snapshot, state

from penstock.decider.core import advised
from penstock.decider.core.decide import Outcome, decide
from penstock.decider.core.registry import BUILTIN
from penstock.decider.publishing.journal import Made, decision_event

BUSY = {"arrival_per_second": 10}  # 20 workers by hybrid
OUTSIDE = {"worker_age_seconds": None}  # none of our workers reports


def demanded(outcome: Outcome) -> int | None:
    [decision] = outcome.decisions
    return advised.demand(decision_event(decision, Made(epoch=1, round=1, through=1, now=NOW), "d"))


def asked(seen: dict[str, Any], hosts: Any = (), **profile: Any) -> int | None:
    measured = snapshot(**{**OUTSIDE, **seen})
    return demanded(one_round(pool(advisor=True, **profile), measured, hosts=list(hosts)))


def test_what_hosts_can_carry_does_not_bind_it() -> None:
    assert asked(BUSY) == 20
    assert asked(BUSY, [host(cores=1)]) == 20
    assert asked(BUSY, [host()]) == 20


def test_bounds_and_an_empty_pool() -> None:
    assert asked(BUSY, max_workers=8) == 8
    assert asked({}, min_workers=2) == 2
    assert asked({}) == 0


@pytest.mark.parametrize("strategy", ["deadline", "hybrid", "backlog_only", "jobs_per_worker"])
def test_there_are_never_fewer_than_jobs_in_work(strategy) -> None:
    for running in (1, 7, 200):
        assert asked({"running": running}, strategy=strategy) == running
    assert asked({"running": 7}, strategy=strategy, max_workers=5) == 5
    assert asked({}, strategy=strategy) == 0


def test_messages_that_wait_need_more_than_those_that_work() -> None:
    """Each takes a minute, all are to start within 30 s: half of those that work will be free."""
    waits = {"waiting": 5, "oldest_waiting_seconds": 1.0, "job_seconds": 60.0}
    lone = asked(waits, strategy="deadline")
    beside = asked({**waits, "running": 10}, strategy="deadline")
    assert lone is not None
    assert beside is not None
    assert lone >= 5
    assert 10 < beside < 10 + 5


def test_workers_that_report_are_counted_by_their_plan() -> None:
    measured = snapshot(running=7, workers_ready=9)
    outcome = one_round(pool(advisor=True), measured, state(emails={"a": 9}))
    [decision] = outcome.decisions
    assert (decision.current, decision.advice) == (9, True)


def test_a_decision_for_which_the_plan_stood_is_no_demand() -> None:
    stale = one_round(pool(advisor=True), snapshot(**OUTSIDE, **BUSY), age=60.0)
    assert demanded(stale) is None
    wanted = pool(advisor=True, strategy="failing")

    class Failing:
        name = "failing"

        def demand(self, _: Any) -> Any:
            raise LookupError("no hours")

    strategies = {**BUILTIN, "failing": Failing()}
    seen = inputs([wanted], [snapshot(**OUTSIDE, **BUSY)], [], strategies=strategies)
    assert demanded(decide(state(), seen, NOW)) is None


@pytest.mark.parametrize(
    ("workers", "per_pod", "pods"), [(0, 4, 0), (1, 4, 1), (8, 4, 2), (9, 4, 3)]
)
def test_pods(workers: int, per_pod: int, pods: int) -> None:
    assert advised.replicas(workers, per_pod) == pods
