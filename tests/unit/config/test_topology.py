"""The start-up rules of pools."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.config import ConfigError, Pool
from penstock.config.load import check
from penstock.config.serving import serving
from penstock.config.topology import is_excluded, pools, profile


def pools_of(**tables: Any) -> dict[str, Pool]:
    excluded, profiles = tables.pop("excluded", []), tables.pop("profiles", {})
    return pools(check({"pools": tables, "excluded": excluded, "profiles": profiles}))


def test_the_default_pool_takes_what_no_pool_names_and_what_is_not_excluded() -> None:
    tables = {"rest": {"kind": "group"}, "mail": {"priorities": True}, "spark": {"kind": "spark"}}
    owners = serving(check({"default_pool": "rest", "excluded": ["old*"], "pools": tables}))
    assert {queue: owners.pool(queue) for queue in ("mail--high", "rest", "new", "old_1")} == {
        "mail--high": "mail", "rest": "rest", "new": "rest", "old_1": "",
    }  # fmt: skip
    discovered = [
        queue for queue in ("mail", "rest", "new", "old_1") if owners.is_discovered(queue)
    ]
    assert discovered == ["new"]


@pytest.mark.parametrize("pool", ["nope", "ledger"])
def test_a_default_pool_that_cannot_be_is_refused(pool: str) -> None:
    settings = check({"default_pool": pool, "pools": {"a": {}, "ledger": {"kind": "exclusive"}}})
    with pytest.raises(ConfigError, match=f"default_pool names '{pool}', .* of our own: a"):
        pools(settings)


class TestPools:
    def test_a_pool_without_queues_has_the_queue_of_its_name(self) -> None:
        assert pools_of(mail={})["mail"].queues == ("mail",)

    def test_overrides_go_over_the_profile_and_the_profile_over_the_defaults(self) -> None:
        pool = pools_of(mail={"profile": "critical", "max_workers": 7})["mail"]
        assert (pool.profile.max_workers, pool.profile.sla_seconds) == (7, 10)

    def test_a_shipped_profile_can_be_changed_in_part(self) -> None:
        pool = pools_of(profiles={"critical": {"sla_seconds": 3}}, mail={"profile": "critical"})
        assert (pool["mail"].profile.sla_seconds, pool["mail"].profile.min_workers) == (3, 5)

    def test_a_profile_of_ones_own_starts_from_the_defaults(self) -> None:
        settings = check({"profiles": {"mine": {"tries": 9}}})
        assert (profile(settings, "mine").tries, profile(settings, "mine").sla_seconds) == (9, 30)

    def test_an_exclusive_pool_is_pinned_at_one(self) -> None:
        pool = pools_of(ledger={"kind": "exclusive"})["ledger"]
        assert (pool.scalable, pool.profile.min_workers, pool.profile.max_workers) == (False, 1, 1)

    def test_workers_run_one_job_at_a_time_unless_they_have_slots(self) -> None:
        found = pools_of(mail={}, calls={"slots": 100})
        assert (found["mail"].job_slots, found["calls"].job_slots) == (1, 100)

    def test_excluded_queues_are_globs(self) -> None:
        settings = check({"excluded": ["legacy-*", "x"]})
        assert [is_excluded(settings, q) for q in ("legacy-a", "x", "xy")] == [True, True, False]


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (
            {"a": {"queues": ["q"]}, "b": {"queues": ["q"]}},
            "queue 'q' is in pools 'a' and 'b'; a queue belongs to one pool",
        ),
        ({"a": {}, "excluded": ["a*"]}, "pools.a: queue 'a' is also excluded"),
        ({"a": {"profile": "none"}}, "unknown profile 'none'; known profiles: background, "),
        ({"a.b": {}}, "pools.a.b: pool name 'a.b' is not allowed"),
        ({"a": {"queues": ["x.*"]}}, "pools.a: queue name 'x.*' is not allowed"),
        ({"a": {"kind": "exclusive", "slots": 2}}, "jobs of an exclusive pool run one at a time"),
        ({"a": {"queues": ["x", "y"]}}, "pools.a: a pool of kind 'queue' has one queue"),
        ({"a": {"kind": "exclusive", "queues": ["x", "y"]}}, "of kind 'exclusive' has one queue"),
        ({"a": {"kind": "group", "queues": ["x", "x"]}}, "pools.a: a queue is named twice"),
        ({"a": {"kind": "group", "profile": "exclusive"}}, "pools.a: a group cannot be pinned"),
        ({"a": {"kind": "group", "scalable": False}}, "pools.a: a group cannot be pinned"),
        ({"a": {"min_workers": 11}}, "pools.a: min_workers 11 exceeds max_workers 10"),
        ({"a": {"scalable": False}}, "pools.a: a pinned pool needs min_workers = max_workers"),
        ({"a": {"kind": "exclusive", "min_workers": 0, "max_workers": 0}}, "found 0..0"),
        ({"a": {"kind": "exclusive", "max_workers": 3}}, "found 1..3"),
    ],
)
def test_a_topology_that_breaks_a_rule_is_refused(tables: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        pools_of(**tables)
    assert said in str(error.value)
