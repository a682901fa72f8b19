"""What a host can carry."""

from __future__ import annotations

import pytest
from tests.unit.decider.given import GIB, host, pool, snapshot

from penstock.decider.core.hosts.capacity import (
    Budget,
    Need,
    budget,
    carries,
    start_budget,
    worker_need,
)
from penstock.decider.core.inputs import Rules

MIB = 1024**2
NOTHING = Budget(0, 0, 0)


def test_the_reference_formula():
    """8 cores at 60 %, half of one in reserve: 7.5 x 0.3; 16 GiB half used: 44 of 128 MiB."""
    rules = Rules(reserve_memory_bytes=0)
    seen = host(cores=8, memory=16 * GIB, cpu_busy_cores=4.8, memory_used_bytes=8 * GIB)
    start = start_budget(seen, rules)
    assert carries(start, Need(1.0, 128 * MIB)) == (2, "cores")
    assert carries(start, Need(0.0001, 128 * MIB)) == (44, "memory")


def test_limits_follow_the_snapshot_and_the_rules():
    """They are remembered by the host's name, for one snapshot and one set of rules."""
    small, large, rules = host(cores=8), host(cores=16), Rules()
    assert start_budget(small, rules).cpu_cores < start_budget(large, rules).cpu_cores
    half = Rules(max_cpu_share=rules.max_cpu_share / 2)
    assert start_budget(large, half).cpu_cores * 2 == start_budget(large, rules).cpu_cores


def test_the_workers_own_use_does_not_count_against_them():
    idle = host(cores=8)
    busy = host(
        cores=8,
        cpu_busy_cores=7,
        own_cpu_busy_cores=7,
        memory_used_bytes=9 * GIB,
        own_memory_bytes=9 * GIB,
    )
    assert start_budget(busy, Rules()) == start_budget(idle, Rules())


def test_a_busy_neighbour_forbids_new_workers_and_keeps_the_planned():
    seen = host(cores=8, cpu_busy_cores=8)
    assert budget(seen, Rules(), NOTHING).cpu_cores == 0
    assert budget(seen, Rules(), Budget(3.0, GIB, 3)).cpu_cores == 3.0


def test_memory_is_hard_but_planned_workers_may_use_the_reserve():
    rules = Rules(reserve_memory_bytes=GIB, max_memory_share=1.0)
    seen = host(memory=4 * GIB)
    assert budget(seen, rules, NOTHING).memory_bytes == 3 * GIB
    assert budget(seen, rules, Budget(0, 10 * GIB, 1)).memory_bytes == 4 * GIB


def test_the_operators_ceiling():
    start = start_budget(host(max_workers=3), Rules())
    assert carries(start, Need(0.01, MIB)) == (3, "max_workers")


@pytest.mark.parametrize(
    ("measured", "found"),
    [
        ({"worker_cpu_cores": 0.7, "worker_memory_bytes": 300 * MIB}, Need(0.7, 300 * MIB)),
        ({}, Need(0.2, 128 * MIB)),
        ({"worker_cpu_cores": 0.0, "worker_memory_bytes": 0}, Need(0.01, 128 * MIB)),
    ],
    ids=["measured before settings", "settings before measured", "never nothing"],
)
def test_need(measured, found):
    assert worker_need(snapshot(**measured), pool().profile) == found


@pytest.mark.parametrize(
    ("memory", "kept"),
    [((16 * GIB, GIB), GIB), ((2 * GIB,), GIB // 2), ((), 0)],
    ids=["all of it", "a quarter of a small host", "no host is known"],
)
def test_what_jobs_start_is_kept_free_beside_what_was_measured(memory, kept):
    profile = pool(jobs_memory_bytes=GIB).profile
    hosts = [host(memory=size) for size in memory]
    found = worker_need(snapshot(worker_memory_bytes=60 * MIB), profile, hosts)
    assert found.memory_bytes == 60 * MIB + kept
