"""The linter: each rule with what it refuses and what it leaves alone."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from tests.unit.decider.given import GIB, host, snapshot, took

from penstock.config.load import check as settings_of
from penstock.config.topology import pools
from penstock.decider.core.lint.check import RULES, lint
from penstock.decider.core.lint.facts import Facts
from penstock.decider.core.lint.promises import PROMISE_BLIND
from penstock.decider.core.registry import BUILTIN


def facts(
    pool: Mapping[str, Any],
    others: Mapping[str, Any] | None = None,
    seen: Mapping[str, Any] | None = None,
    hosts: Any = (),
) -> Facts:
    """One pool `mails`; ``seen``: what was measured of it."""
    settings = settings_of({"pools": {"mails": pool}, **(others or {})})
    return Facts(
        settings=settings,
        pools=pools(settings),
        measured_pools={} if seen is None else {"mails": snapshot("mails", **seen)},
        measured_hosts={each.host: each for each in hosts},
    )


SLOW_START = {"spawn": took(3.1)}
CASES: dict[str, tuple[Facts, str]] = {
    "cold-start": (
        facts({"sla_seconds": 2, "min_workers": 0}, seen=SLOW_START),
        "SLA 2 s, minimum 0, a worker needs 3.1 s to start (measured): keep 1 warm "
        "(min_workers = 1), or promise 5 s",
    ),
    "minimums-beyond-hosts": (
        facts(
            {"min_workers": 9, "max_workers": 9, "memory_bytes": GIB},
            hosts=[host("a", memory=4 * GIB), host("b", memory=4 * GIB)],
        ),
        "9 workers, need 3.0 hosts",
    ),
    "too-large-a-worker": (
        facts({"memory_bytes": 64 * GIB}, hosts=[host("a", memory=4 * GIB)]),
        "a worker needs 65536 MB",
    ),
    "always-stale": (
        facts({}, {"decider": {"stale_seconds": 5}, "metrics": {"interval_seconds": 5}}),
        "set it to 15 or more",
    ),
    "too-few-workers": (
        facts(
            {"max_workers": 10},
            seen={"arrival_per_second": 4.0, "job_seconds": 3.0},
        ),
        "4 jobs/s of 3 s keep 12 workers busy, max_workers is 10",
    ),
    "strategy-ignores-promise": (
        facts({"strategy": "simple_rate", "sla_seconds": 5}),
        "strategy simple_rate does not look at the promise (95% within 5 s)",
    ),
    "slow-measuring": (
        facts({"sla_seconds": 1}, {"metrics": {"interval_seconds": 2}}),
        "lower metrics.interval_seconds",
    ),
    "short-drain": (facts({}, seen={"job_seconds": 90.0}), "raise host.drain_seconds"),
    "late-drain": (
        facts({"strategy": "hybrid", "sla_seconds": 10, "breach_threshold": 0.9}, seen=SLOW_START),
        "hybrid begins to empty the queue 1 s before",
    ),
    "slow-steps-up": (
        facts({"strategy": "hybrid", "sla_seconds": 10, "scale_up_cooldown_seconds": 60}),
        "scale_up_cooldown_seconds 60",
    ),
    "opposed-policies": (
        facts({"policies": ["cooldown", "aggressive"]}),
        "aggressive and cooldown work against each other",
    ),
    "budget-below-minimum": (
        facts(
            {
                "min_workers": 3,
                "policies": ["budget-cap"],
                "policy_options": {"budget-cap": {"worker_hours_per_day": 60}},
            }
        ),
        "min_workers 3 alone cost 72 worker-hours a day, the budget is 60",
    ),
    "short-settling": (
        facts({"policy_options": {"effectiveness": {"settle_seconds": 20}}}),
        "set its settle_seconds to 60",
    ),
    "only-advised": (facts({"advisor": True}), "in advisor mode its plan stays"),
}


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_each_rule_finds_what_it_is_about_and_nothing_else(rule):
    given, said = CASES[rule]
    (found,) = lint(given)
    assert found.rule == rule
    assert said in found.text


@pytest.mark.parametrize("profile", ["critical", "high-volume", "balanced", "bursty", "background"])
def test_what_ships_is_fine(profile):
    seen = {"arrival_per_second": 0.5, "job_seconds": 1.0, "spawn": took(0.1)}
    assert lint(facts({"profile": profile}, seen=seen, hosts=[host("a"), host("b")])) == []
    assert lint(facts({"kind": "exclusive"})) == []
    assert lint(facts({"profile": profile})) == []


def test_start_times_are_assumed_where_none_was_measured():
    (found,) = lint(facts({"sla_seconds": 0.05, "min_workers": 0, "strategy": "wait_time"}))[:1]
    assert "a worker needs 0.1 s to start (assumed)" in found.text


def test_a_pool_that_keeps_a_worker_may_promise_more_than_a_start_takes():
    kept = facts({"sla_seconds": 2, "min_workers": 1, "strategy": "wait_time"}, seen=SLOW_START)
    assert lint(kept) == []


def test_errors_come_first():
    both = facts({"sla_seconds": 2, "min_workers": 0, "strategy": "simple_rate"}, seen=SLOW_START)
    assert [found.level for found in lint(both)] == ["error", "warning"]


def test_the_strategies_that_heed_no_promise_are_named_rightly():
    """By whether their source looks at the promise or at ages; `combined` does as its parts do, and
    `deadline` consists of several modules."""
    looks = ("sla_seconds", "oldest_waiting", "ages", "pickup")
    unresponsive = {
        name
        for name, strategy in BUILTIN.items()
        if not any(word in inspect.getsource(inspect.getmodule(strategy)) for word in looks)
    }
    assert unresponsive - {"combined", "deadline"} == PROMISE_BLIND


def test_rules_have_names_and_a_line_each():
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(rule.about and "\n" not in rule.about for rule in RULES)
    assert msgspec.json.encode(lint(CASES["cold-start"][0]))


def test_a_busy_machine_makes_no_settings_wrong():
    """What is used now, by others or by those very workers, says nothing about the settings."""
    busy = host("a", cores=2, memory=4 * GIB, cpu_busy_cores=12.0, memory_used_bytes=4 * GIB)
    assert "too-large-a-worker" not in {each.rule for each in lint(facts({}, hosts=[busy]))}
    large = facts({"memory_bytes": 64 * GIB}, hosts=[busy])
    assert "too-large-a-worker" in {each.rule for each in lint(large)}
