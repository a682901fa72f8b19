"""Settings compared over recorded days: which one is recommended, and which none beats."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.config import ConfigError, Pool, Profile
from penstock.decider.simulator.studies.tuning import (
    AS_IT_IS,
    Day,
    changed,
    check,
    combinations,
    simulate,
    sum_up,
)

POOL = Pool(name="a", kind="queue", queues=("a",), profile=Profile(quantile=0.9, min_workers=0))


def day(setting: str, late: float, worker_seconds: float, jobs: int = 100) -> tuple[str, Day]:
    return "a", Day(
        setting=setting,
        hours=24.0,
        jobs=jobs,
        late=late,
        wait_p95_seconds=1.0,
        worker_seconds=worker_seconds,
        actions=4.0,
    )


def test_the_cheapest_that_keeps_the_promise_is_recommended() -> None:
    tried = [day("dear", 0, 900), day("right", 5, 500), day("lucky", 9, 200), day("late", 11, 100)]
    rows = sum_up(tried, {"a": POOL})
    assert [row.setting for row in rows] == ["late", "lucky", "right", "dear"]
    assert [row.best for row in rows] == [False, False, True, False]
    assert all(row.frontier for row in rows)


def test_where_none_keeps_it_the_least_late_is() -> None:
    rows = sum_up([day("one", 50, 900), day("two", 20, 990), day("worse", 60, 950)], {"a": POOL})
    assert {row.setting: (row.best, row.frontier) for row in rows} == {
        "one": (False, True),
        "two": (True, True),
        "worse": (False, False),
    }


def test_days_weigh_by_their_jobs_and_hours() -> None:
    quiet, busy = day("x", 0, 3600, jobs=100), day("x", 30, 7200, jobs=300)
    (row,) = sum_up([quiet, busy], {"a": POOL})
    assert (row.days, row.jobs, row.late_share) == (2, 400, 0.075)
    assert (row.worker_hours, row.actions) == (1.5, 4.0)


def test_every_choice_with_every_other() -> None:
    found = combinations({"min_workers": [0, 1], "strategy": ["deadline", "hybrid"]})
    assert len(found) == 4
    assert found["min_workers=1, strategy=hybrid"] == {"min_workers": 1, "strategy": "hybrid"}
    with pytest.raises(ConfigError, match="found 1500 combinations"):
        combinations({"min_workers": range(50), "max_workers": range(30)})


def test_nested_settings_are_laid_over_the_pools_own() -> None:
    profile = changed(POOL, {"options.deadline.change_seconds": 30, "min_workers": 2}).profile
    assert (profile.options["deadline"], profile.min_workers) == ({"change_seconds": 30}, 2)
    with pytest.raises(ConfigError, match="min_wrokers"):
        changed(POOL, {"min_wrokers": 2})
    with pytest.raises(ConfigError, match="deadlin"):
        check([POOL], {"x": {"strategy": "deadlin"}})
    with pytest.raises(ConfigError, match=r"did you mean options\.deadline\.calm"):
        check([POOL], {"x": {"calm": 2}})


def test_a_stretch_is_simulated_under_each_setting() -> None:
    jobs = np.arange(0, 600, 30.0)
    tables = {"warm": {"min_workers": 3}, "same": {"min_workers": 0}}
    found = simulate({"a": POOL}, tables, 2.0, "a", 0.0, 0.2, jobs, np.ones(20))
    assert [(each.setting, each.jobs, each.late) for each in found] == [
        (AS_IT_IS, 20, 0.0),
        ("warm", 20, 0.0),
        ("same", 20, 0.0),
    ]
    assert found[2].worker_seconds == found[0].worker_seconds
    assert found[1].worker_seconds > 2 * found[0].worker_seconds
    assert found[1].wait_p95_seconds < found[0].wait_p95_seconds
    assert simulate({}, {}, 2.0, "a", 0.0, 1.0, jobs, jobs) == []
