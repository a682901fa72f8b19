"""Pools of Spark Workers as the settings declare them."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.config import ConfigError, Pool
from penstock.config.load import check
from penstock.config.topology import pools
from penstock.spark.master import address, ui_url

GIB = 1 << 30


def pool_of(cluster: dict[str, Any] | None = None, **table: Any) -> Pool:
    tables = {"etl": {"kind": "spark", **table}, "nightly": {}}
    return pools(check({"cluster": cluster or {"master": "local"}, "pools": tables}))["etl"]


def test_a_worker_is_reckoned_with_what_it_gives_away() -> None:
    pool = pool_of(slots=2, slot_memory_bytes=GIB)
    assert pool.queues == ()
    assert pool.profile.min_workers == 0
    assert pool.profile.cpu_cores == 2
    assert pool.profile.memory_bytes == 2 * GIB + 160 * 1024 * 1024
    assert pool_of(cpu_cores=0.5).profile.cpu_cores == 0.5


def test_a_pool_serves_the_jobs_of_others() -> None:
    pool = pool_of(serves=["nightly"], slots_per_job=4)
    assert (pool.serves, pool.slots_per_job) == (("nightly",), 4)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"cluster": {"master": ""}}, "needs a Spark cluster; set cluster.master"),
        ({"queues": ["a"]}, "has no queues and no priorities"),
        ({"priorities": True}, "has no queues and no priorities"),
        ({"slots": 0}, "slots"),
        ({"serves": ["nihgtly"]}, "serves names 'nihgtly', expected a pool of jobs: nightly"),
        ({"serves": ["etl"]}, "serves names 'etl'"),
        ({"kind": "queue", "serves": ["nightly"]}, "'serves' is for pools of kind 'spark'"),
        ({"cluster": {"master": "yarn"}}, "cluster.master"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        pool_of(**table)


def test_where_the_master_is() -> None:
    local = check({"cluster": {"master": "local", "port": 7, "ui_port": 8}}).cluster
    assert (address(local), ui_url(local)) == ("spark://127.0.0.1:7", "http://127.0.0.1:8")
    given = check({"cluster": {"master": "spark://m1:7077,m2:7077"}}).cluster
    assert (address(given), ui_url(given)) == ("spark://m1:7077,m2:7077", "http://m1:8080")
    named = check({"cluster": {"master": "spark://m:1", "ui_url": "https://x/ui"}}).cluster
    assert ui_url(named) == "https://x/ui"


def test_jobs_that_work_on_the_cluster_run_one_at_a_time() -> None:
    tables = {"etl": {"kind": "spark", "serves": ["nightly"]}, "nightly": {"slots": 20}}
    with pytest.raises(ConfigError, match=r"pools.nightly: slots = 20.*one Spark session"):
        pools(check({"cluster": {"master": "local"}, "pools": tables}))
