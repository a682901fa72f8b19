"""Rules about hosts: whether the configured workers fit on the hosts that are there."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from penstock.decider.core.hosts.capacity import Need, carries, start_budget, worker_need
from penstock.decider.core.inputs import Rules
from penstock.decider.core.lint.facts import Facts, seconds
from penstock.events.snapshot import HostSnapshot


def minimums_beyond_hosts(facts: Facts) -> Iterator[str]:
    """All minimums together are more than the hosts carry."""
    parts = _host_shares(facts)
    least = sum(pool.profile.min_workers for pool in facts.pools.values())
    if facts.measured_hosts and sum(parts.values()) > len(facts.measured_hosts):
        largest = max(parts, key=lambda name: parts[name])
        yield (
            f"the minimums of all pools, {least} workers, need {sum(parts.values()):.1f} hosts as "
            f"there are ({len(facts.measured_hosts)}): lower them, most of all that of "
            f"pools.{largest}, or add hosts"
        )


def too_large_a_worker(facts: Facts) -> Iterator[str]:
    """No host has the memory or the cores for one worker."""
    for pool in facts.pools.values():
        if facts.measured_hosts and not _most_a_host(facts, pool.name):
            need = _need(facts, pool.name)
            yield (
                f"pools.{pool.name}: a worker needs {need.memory_bytes / 2**20:.0f} MB and "
                f"{need.cpu_cores:.2g} cores, no host is that large: lower memory_bytes and "
                "cpu_cores, or add a larger host"
            )


def short_drain(facts: Facts) -> Iterator[str]:
    """Jobs run longer than a busy worker may take to finish when it goes."""
    for pool in facts.pools.values():
        own = pool.drain.seconds if pool.is_foreign else None
        drain = facts.settings.host.drain_seconds if own is None else own
        measured = facts.measured_pools.get(pool.name)
        service = measured.service if measured else None
        if pool.scalable and service and service.p95_seconds > drain:
            yield (
                f"pools.{pool.name}: one job in twenty runs longer than "
                f"{seconds(service.p95_seconds)}, a worker that goes may finish for "
                f"{seconds(drain)}, then the job begins anew: raise "
                f"{'host.drain_seconds' if own is None else f'pools.{pool.name}.drain.seconds'}"
            )


def _host_shares(facts: Facts) -> dict[str, float]:
    """Hosts that each pool's minimum fills, by pool."""
    return {
        name: pool.profile.min_workers / most
        for name, pool in facts.pools.items()
        if (most := _most_a_host(facts, name))
    }


def _most_a_host(facts: Facts, pool: str) -> int:
    """Workers of one pool that the largest host carries while nothing else runs on it.

    By its size: settings are no worse because the machine is busy when they are checked.
    """
    rules, need = Rules.of(facts.settings), _need(facts, pool)
    budgets = (start_budget(_idle(host), rules) for host in facts.measured_hosts.values())
    return max((carries(budget, need)[0] for budget in budgets), default=0)


def _idle(host: HostSnapshot) -> HostSnapshot:
    return msgspec.structs.replace(
        host, cpu_busy_cores=0.0, memory_used_bytes=0, own_cpu_busy_cores=0.0, own_memory_bytes=0
    )


def _need(facts: Facts, pool: str) -> Need:
    profile = facts.pools[pool].profile
    return worker_need(facts.measured_pools.get(pool), profile, facts.measured_hosts.values())
