"""How to test a strategy of your own: values in, a number and a sentence out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from example_strategies import budget_aware, time_of_day

from penstock.config import Pool, Profile
from penstock.decider.core.strategy import Demand, StrategyInputs, whole
from penstock.events.snapshot import PoolSnapshot, Quantiles

TWO_SECONDS = Quantiles(
    count=100, mean_seconds=2, p50_seconds=2, p95_seconds=2, p99_seconds=2, cv2=0
)
POOL = Pool(name="mails", kind="queue", queues=("mails",), profile=Profile())


def inputs(at: str, per_second: float = 0.0, **others: Any) -> StrategyInputs:
    """So many jobs a second, of 2 s each, at this time."""
    snapshot = PoolSnapshot(
        pool="mails",
        queues=("mails",),
        waiting=0,
        arrival_per_second=per_second,
        service=TWO_SECONDS,
    )
    now = datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp()
    others = {"current": 0, "age_seconds": 0.5, **others}
    return StrategyInputs(pool=POOL, snapshot=snapshot, now=now, **others)


@pytest.mark.parametrize(
    ("clock", "workers"), [("00:00", 1), ("07:29", 1), ("07:30", 5), ("17:59", 5), ("18:00", 1)]
)
def test_the_floor_that_began_last_holds(clock: str, workers: int) -> None:
    options = time_of_day.Options(floors={"07:30": 5, "18:00": 1})
    demand = time_of_day.TimeOfDay().demand(inputs(f"2026-10-20 {clock}", options=options))
    assert whole(demand.workers) == workers


def test_more_traffic_goes_over_the_floor() -> None:
    options = time_of_day.Options(floors={"07:30": 3})
    given = inputs("2026-10-20 12:00", per_second=10, options=options)
    demand = time_of_day.TimeOfDay().demand(given)
    assert demand.reasons[-1].text == (
        "20 wanted by time_of_day: 3 at least from 07:30 on; "
        "20 wanted by simple_rate: 10 jobs/s, 2 s a job"
    )


class TestBudget:
    options = budget_aware.Options(worker_hours_per_day=24)

    def demand(self, at: str, **others: Any) -> Demand:
        given = inputs(f"2026-10-20 {at}", per_second=5, options=self.options, **others)
        return budget_aware.BudgetAware().demand(given)

    def test_a_fresh_day_has_all_of_it(self) -> None:
        demand = self.demand("09:00")
        assert demand.workers == 10
        assert demand.memory["spent_hours"] == 0

    def test_what_runs_is_counted_and_what_is_left_paces(self) -> None:
        demand = self.demand("11:00", current=10, memory=self.demand("09:00").memory)
        assert demand.memory["spent_hours"] == pytest.approx(20)
        assert demand.workers == 4

    def test_nothing_is_left(self) -> None:
        demand = self.demand("12:00", current=10, memory=self.demand("09:00").memory)
        assert demand.workers == 0
        assert "0.0 of 24 worker-hours are left today" in demand.reasons[-1].text

    def test_midnight_begins_anew(self) -> None:
        yesterday = {"day": "2026-10-19", "spent_hours": 24.0, "at": inputs("2026-10-19 23:00").now}
        demand = self.demand("01:00", current=2, memory=yesterday)
        assert demand.memory["spent_hours"] == pytest.approx(2)

    def test_a_clock_that_was_set_back_takes_nothing_back(self) -> None:
        demand = self.demand("08:00", current=10, memory=self.demand("09:00").memory)
        assert demand.memory["spent_hours"] == 0
