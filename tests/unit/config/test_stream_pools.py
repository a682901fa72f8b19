"""Pools of Spark Workers whose source is streaming queries: their settings, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.config import ConfigError, Pool
from penstock.config.load import check
from penstock.config.topology import pools

SOURCES = {"progress": {"kind": "spark-stream"}, "shop": {"kind": "celery", "url": "redis://c:1"}}
TABLE = {"kind": "spark", "source": "progress", "queues": ["orders"]}


def stream(profiles: Any = None, **settings: Any) -> Pool:
    tables = {"stream": {**TABLE, **settings}, "mail": {}}
    cluster = {"master": "local"}
    found = check(
        {"pools": tables, "sources": SOURCES, "cluster": cluster, "profiles": profiles or {}}
    )
    return pools(found)["stream"]


def test_its_queues_are_queries_and_its_strategy_knows_batches() -> None:
    pool = stream(queues=["orders", "clicks"], slots=2)
    assert (pool.queues, pool.source_queues, pool.source) == ((), ("orders", "clicks"), "progress")
    assert (pool.kind, pool.is_foreign, pool.profile.strategy) == ("spark", False, "batch_within")
    assert pool.profile.cpu_cores == 2.0


def test_policies_that_go_by_busy_workers_are_none_of_its_usual_ones() -> None:
    assert stream().profile.policies_in_force == ("breach-notification",)


@pytest.mark.parametrize("strategy", ["fixed", "schedule", "of_a_package"])
def test_a_strategy_that_is_set_stands(strategy: str) -> None:
    assert stream(strategy=strategy).profile.strategy == strategy


REFUSED = [
    ({"kind": "queue"}, "whose tasks run on Spark Workers: set kind = 'spark', found 'queue'"),
    ({"queues": []}, "name the streaming queries"),
    ({"queues": ["orders", "orders"]}, "a queue is named twice"),
    ({"queues": ["my orders"]}, "queue name 'my orders' is not allowed"),
    ({"source": "shop"}, "source 'shop' is of kind 'celery', whose messages are no tasks of Spark"),
    ({"source": "shpo"}, "source names 'shpo', expected a table [sources.NAME]: progress, shop"),
    ({"source": ""}, "a pool of kind 'spark' has no queues"),
    ({"strategy": "deadline"}, "counts jobs that workers take one by one"),
    ({"strategy": "hybrid"}, "use 'batch_within'"),
    ({"command": ["true"]}, "command and streaming queries exclude each other"),
    ({"serves": ["mail"]}, "serves and a source exclude each other"),
    ({"priorities": True}, "no priorities"),
    ({"runtime_seconds": 2.0}, "runtime_seconds is for workers of another system"),
]


@pytest.mark.parametrize(("settings", "text"), REFUSED)
def test_what_cannot_work_is_refused_with_the_reason(settings: Any, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        stream(**settings)
    assert text in str(caught.value)


def test_a_strategy_for_jobs_that_comes_from_a_profile_is_refused_too() -> None:
    profiles = {"mine": {"strategy": "hybrid"}}
    with pytest.raises(ConfigError, match="counts jobs"):
        stream(profiles, profile="mine")


def test_batches_are_no_jobs_of_other_pools() -> None:
    settings = check({"pools": {"mail": {"strategy": "batch_within"}}})
    with pytest.raises(ConfigError, match="knows batches of streaming queries alone"):
        pools(settings)


def test_a_query_belongs_to_one_pool() -> None:
    two = {"one": TABLE, "two": TABLE}
    settings = check({"pools": two, "sources": SOURCES, "cluster": {"master": "local"}})
    with pytest.raises(ConfigError, match="queue 'orders' of source 'progress' is in pools"):
        pools(settings)
