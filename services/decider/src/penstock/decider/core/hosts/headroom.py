"""The headroom of hosts, from their liveness and what is planned on them already."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping
from typing import NamedTuple

from penstock.decider.core.hosts.capacity import (
    Budget,
    HostCapacity,
    Load,
    budget,
    carries,
    limits,
    without_others,
)
from penstock.decider.core.hosts.fairshare import Claim
from penstock.decider.core.hosts.liveness import HostLiveness
from penstock.decider.core.hosts.planned import PlannedWorkers
from penstock.decider.core.inputs import Inputs
from penstock.decider.core.state import PoolState
from penstock.events.snapshot import HostSnapshot


def host_capacities(
    hosts: HostLiveness,
    planned: PlannedWorkers,
    inputs: Inputs,
    moving: frozenset[str],
) -> dict[str, HostCapacity]:
    """The capacity of each host that is not lost, holding all pools but those to be placed.

    A silent host has exactly the capacity that it was planned to need. A host whose executor ends
    keeps its share only while there is no other to take it; one that an operator drains keeps none.
    """
    capacities: dict[str, HostCapacity] = {}
    # a host without any pool that is placed now holds all that it was planned to carry
    staying = planned.loads_without(moving)
    present = hosts.fresh.union(hosts.silent, hosts.draining, hosts.unresponsive, hosts.paused)
    for host in sorted(present):
        draining, load = host in hosts.draining, planned.load(host)
        limit = (
            Budget(load.cpu_cores, load.memory_bytes, load.workers)
            if host in hosts.silent
            else budget(inputs.measured_hosts[host].snapshot, inputs.rules, load)
        )
        capacities[host] = HostCapacity(
            host,
            limit,
            accepts=host in hosts.fresh,
            keeps=host not in hosts.drained and (not draining or not hosts.fresh),
            crowded=load.exceeds(limit),
        )
        capacities[host].hold(staying.get(host, load))
    return capacities


def anchor(pool: str, remembered: PoolState, inputs: Inputs, hosts: HostLiveness) -> str | None:
    """The host whose executor ends and on which an exclusive pool's workers still live.

    Two hosts at a time would break the exclusion, so that it stays there until they are gone.
    """
    for host in sorted(remembered.placement):
        if host in hosts.draining - hosts.drained:
            workers = inputs.measured_hosts[host].snapshot.pools.get(pool)
            if workers and workers.started + workers.draining > 0:
                return host
    return None


def crash_loops(hosts: HostLiveness, inputs: Inputs) -> dict[str, frozenset[str]]:
    """By pool, the hosts where its workers keep ending at once; none where that is so on all hosts.

    An exclusive pool stays where it may be running.
    """
    loops: dict[str, set[str]] = defaultdict(set)
    for host in hosts.fresh:
        for name in limits(inputs.measured_hosts[host].snapshot, inputs.rules).crash_loops:
            if name in inputs.pools:
                loops[name].add(host)
    return {
        name: frozenset(looping)
        for name, looping in loops.items()
        if len(looping) < len(hosts.fresh) and inputs.pools[name].kind != "exclusive"
    }


def drained_home(pool: str, inputs: Inputs, hosts: HostLiveness) -> str | None:
    """The host that an operator drains and on which workers of a pool still live."""
    for host in sorted(hosts.drained):
        workers = inputs.measured_hosts[host].snapshot.pools.get(pool)
        if workers and workers.started + workers.draining > 0:
            return host
    return None


class Fit(NamedTuple):
    """The number of workers of a pool that fit onto hosts.

    Attributes:
        workers: that fit.
        bound: the resource that bounds them.
        host: where it does.
        others: what processes other than workers use there, if that makes the number smaller.
    """

    workers: int
    bound: str
    host: str = ""
    others: str = ""


def alone(
    claim: Claim, capacities: Mapping[str, HostCapacity], inputs: Inputs, silent: Container[str]
) -> Fit:
    """The workers that this pool could have if it were the only one."""
    fits = [
        _fit(claim, host, inputs, host in silent)
        for host, capacity in sorted(capacities.items())
        if capacity.accepts or (capacity.keeps and claim.placement.get(host))
    ]
    if not fits:
        return Fit(0, "hosts")
    largest = max(fits, key=lambda fit: fit.workers)
    total = largest.workers if claim.one_host else sum(fit.workers for fit in fits)
    cause = largest if claim.one_host else next((fit for fit in fits if fit.others), largest)
    return cause._replace(workers=total)


def _fit(claim: Claim, host: str, inputs: Inputs, silent: bool) -> Fit:
    """On one host, beside processes that are no workers but without any other pool."""
    planned = Load()
    planned.add(claim.need, claim.placement.get(host, 0))
    if silent:
        limit = Budget(planned.cpu_cores, planned.memory_bytes, planned.workers)
        return Fit(*carries(limit, claim.need), host)
    snapshot = inputs.measured_hosts[host].snapshot
    count, bound = carries(budget(snapshot, inputs.rules, planned), claim.need)
    undisturbed, _ = carries(budget(without_others(snapshot), inputs.rules, planned), claim.need)
    return Fit(count, bound, host, _others(snapshot, bound) if undisturbed > count else "")


def _others(host: HostSnapshot, bound: str) -> str:
    if bound == "cores":
        used = max(host.cpu_busy_cores - host.own_cpu_busy_cores, 0.0)
        return f"{used:.2g} of {host.cpu_cores:.3g} cores"
    used = max(host.memory_used_bytes - host.own_memory_bytes, 0)
    return f"{used / 2**30:.2g} of {host.memory_bytes / 2**30:.3g} GiB"
