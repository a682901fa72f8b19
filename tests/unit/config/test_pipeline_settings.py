"""A lake in the settings brings the jobs that fill it, and a pool for them."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.config import ConfigError
from penstock.config.embedded import PIPELINE_JOBS
from penstock.config.load import check
from penstock.config.topology import pools
from penstock.jobs.pipeline import by_clock


def settings(**pipeline: Any) -> Any:
    return check({"pipeline": {"lake": "/data/lake", **pipeline}})


def test_a_lake_is_all_that_has_to_be_said() -> None:
    made = settings()
    assert made.jobs.modules == (PIPELINE_JOBS,)
    (pool,) = pools(made).values()
    assert (pool.name, pool.kind, pool.queues) == ("pipeline", "exclusive", ("pipeline",))
    assert pool.profile.kept_for_jobs(16 * 10**9) == 12 * 10**8  # Spark's, beside the worker
    assert set(by_clock(made.pipeline)) == {"pipeline-land", "pipeline-forecast"}
    assert "pipeline-report" in by_clock(settings(report_file="/data/week.html").pipeline)
    assert set(by_clock(settings(forecast="").pipeline)) == {"pipeline-land"}


def test_without_a_lake_there_is_nothing_of_it() -> None:
    made = check({})
    assert (made.jobs.modules, made.pools, by_clock(made.pipeline)) == ((), {}, {})


def test_a_pool_that_serves_the_queue_stays_as_it_is() -> None:
    own = {"night": {"kind": "exclusive", "queues": ["pipeline"]}}
    made = check({"pipeline": {"lake": "x"}, "pools": own, "jobs": {"modules": [PIPELINE_JOBS]}})
    assert (list(made.pools), made.jobs.modules) == (["night"], (PIPELINE_JOBS,))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"land": "each day"}, "is no cron expression"),
        ({"zone": "Nowhere/Land"}, "is not known"),
        ({"special_days": ["Christmas"]}, "expected e.g. '2026-12-25'"),
    ],
)
def test_what_would_never_run_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        settings(**wrong)
