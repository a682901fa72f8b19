"""The headroom of hosts, from their liveness and what is planned on them already."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from math import inf
from typing import NamedTuple

from penstock.config import Pool
from penstock.decider.core.hosts.capacity import (
    Budget,
    HostCapacity,
    Load,
    Need,
    budget,
    carries,
    limits,
    without_others,
    worker_need,
)
from penstock.decider.core.hosts.fairshare import Claim
from penstock.decider.core.hosts.liveness import HostLiveness
from penstock.decider.core.inputs import Inputs
from penstock.decider.core.state import PoolState, State
from penstock.events.snapshot import HostSnapshot


class Needs:
    """The needs of one worker of each pool, in one round.

    A measure that fits on no host, even if none of our workers ran there, proves nothing about the
    next worker: it was forged, or the last worker leaked until it was ended. One worker is then
    tried with the configured need, as nothing else can measure anew.
    """

    def __init__(self, hosts: HostLiveness, inputs: Inputs) -> None:
        self._inputs, self._measured = inputs, dict[str, Need]()
        measured, rules = inputs.measured_hosts, inputs.rules
        bounds = [limits(measured[host].snapshot, rules) for host in hosts.fresh]
        self._most_started = max([host.start.memory_bytes for host in bounds], default=inf)
        kept = [max(host.start.memory_bytes, host.keep_bytes) for host in bounds]
        self._most_kept = max(kept, default=inf)

    def of(self, pool: Pool, remembered: PoolState) -> Need:
        measured = self.measured(pool)
        if measured.memory_bytes <= self._most_started:  # as nearly always; no more than is kept
            return measured
        return self._configured(pool) if self.is_trial(pool, remembered) else measured

    def is_trial(self, pool: Pool, remembered: PoolState) -> bool:
        """Whether its measured need fits nowhere, and its configured need is less."""
        measured = self.measured(pool).memory_bytes
        most = self._most_kept if remembered.workers else self._most_started
        return measured > most and self._configured(pool).memory_bytes < measured

    def measured(self, pool: Pool) -> Need:
        """By its last snapshot; by the settings where that says nothing."""
        need = self._measured.get(pool.name)
        if need is None:
            measurement = self._inputs.measured_pools.get(pool.name)
            snapshot = measurement.snapshot if measurement else None
            hosts = self._hosts() if pool.profile.jobs_memory_bytes else ()
            need = self._measured[pool.name] = worker_need(snapshot, pool.profile, hosts)
        return need

    def _configured(self, pool: Pool) -> Need:
        return worker_need(None, pool.profile, self._hosts())

    def _hosts(self) -> Iterator[HostSnapshot]:
        return (host.snapshot for host in self._inputs.measured_hosts.values())


def host_capacities(
    hosts: HostLiveness,
    state: State,
    inputs: Inputs,
    moving: frozenset[str],
    needs: Needs,
) -> dict[str, HostCapacity]:
    """The capacity of each host that is not lost, holding all pools but those to be placed.

    A silent host has exactly the capacity that it was planned to need. A host whose executor ends
    keeps its share only while there is no other to take it; one that an operator drains keeps none.
    """
    capacities: dict[str, HostCapacity] = {}
    planned, held = _loads(state, inputs, moving, needs)
    present = hosts.fresh.union(hosts.silent, hosts.draining, hosts.unresponsive, hosts.paused)
    for host in sorted(present):
        draining, load = host in hosts.draining, planned.get(host) or Load()
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
        if host in held:
            capacities[host].hold(held[host])
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
        for name, workers in inputs.measured_hosts[host].snapshot.pools.items():
            if workers.crash_loop and name in inputs.pools:
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


def _loads(
    state: State, inputs: Inputs, moving: frozenset[str], needs: Needs
) -> tuple[dict[str, Load], dict[str, Load]]:
    """The load that each host was planned to carry before this round, by what workers need now;
    and of that, what belongs to pools that are not placed now."""
    planned: dict[str, Load] = defaultdict(Load)
    held: dict[str, Load] = defaultdict(Load)
    placed = [(name, pool) for name, pool in state.pools.items() if pool.placement]
    mixed = set().union(*[pool.placement for name, pool in placed if name in moving])
    for name, remembered in placed:
        need = needs.of(inputs.pools[name], remembered)
        for host, count in remembered.placement.items():
            planned[host].add(need, count)
            if host in mixed and name not in moving:
                held[host].add(need, count)
    # of a host without any pool that is placed now, all is held: it is not added up twice
    return planned, {**held, **{host: planned[host] for host in planned.keys() - mixed}}
