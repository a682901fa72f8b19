"""The hosts as rooms to place workers in, from the roll call and what is planned already."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from math import inf
from typing import NamedTuple

from penstock.config import Pool
from penstock.decider.core.hosts.capacity import (
    Budget,
    Load,
    Need,
    Room,
    budget,
    carries,
    need,
    start_budget,
    without_others,
)
from penstock.decider.core.hosts.fairshare import Claim
from penstock.decider.core.hosts.liveness import RollCall
from penstock.decider.core.inputs import Inputs
from penstock.decider.core.state import PoolState, State
from penstock.events.snapshot import HostSnapshot

_EVERYTHING = Budget(inf, inf)


class Needs:
    """What one worker of each pool takes, in one round.

    A measure that fits on no host, even if none of our workers ran there, proves nothing about the
    next worker: it was forged, or the last worker leaked until it was ended. One worker is then
    tried with the configured need, as nothing else can measure anew.
    """

    def __init__(self, present: RollCall, inputs: Inputs) -> None:
        self._inputs = inputs
        limits = [
            budget(inputs.seen_hosts[host].snapshot, inputs.rules, _EVERYTHING).memory_bytes
            for host in present.fresh
        ]
        self._most_kept = max(limits, default=inf)
        starts = (start_budget(inputs.seen_hosts[h].snapshot, inputs.rules) for h in present.fresh)
        self._most_started = max((each.memory_bytes for each in starts), default=inf)

    def of(self, pool: Pool, remembered: PoolState) -> Need:
        return self._configured(pool) if self.is_trial(pool, remembered) else self.measured(pool)

    def is_trial(self, pool: Pool, remembered: PoolState) -> bool:
        """Whether its measured need fits nowhere, and its configured need is less."""
        measured = self.measured(pool).memory_bytes
        most = self._most_kept if remembered.workers else self._most_started
        return measured > most and self._configured(pool).memory_bytes < measured

    def measured(self, pool: Pool) -> Need:
        """By its last snapshot; by the settings where that says nothing."""
        seen = self._inputs.seen_pools.get(pool.name)
        return need(seen.snapshot if seen else None, pool.profile, self._hosts())

    def _configured(self, pool: Pool) -> Need:
        return need(None, pool.profile, self._hosts())

    def _hosts(self) -> Iterator[HostSnapshot]:
        return (host.snapshot for host in self._inputs.seen_hosts.values())


def open_rooms(
    present: RollCall, state: State, inputs: Inputs, moving: frozenset[str], needs: Needs
) -> dict[str, Room]:
    """A room for each host that is not lost, holding all pools but those that are to be placed.

    A silent host has exactly the room that it was planned to need. A draining host keeps its share
    only while there is no other to take it.
    """
    found: dict[str, Room] = {}
    planned, held = _loads(state, inputs, moving, needs)
    for host in sorted(present.fresh.union(present.silent, present.draining, present.heedless)):
        draining, load = host in present.draining, planned.get(host) or Load()
        limit = (
            Budget(load.cpu_cores, load.memory_bytes, load.workers)
            if host in present.silent
            else budget(inputs.seen_hosts[host].snapshot, inputs.rules, load)
        )
        found[host] = Room(
            host,
            limit,
            accepts=host in present.fresh,
            keeps=not draining or not present.fresh,
        )
        if host in held:
            found[host].hold(held[host])
    return found


def anchor(pool: str, remembered: PoolState, inputs: Inputs, present: RollCall) -> str | None:
    """The draining host on which an exclusive pool's workers still live: two hosts at a time would
    break the exclusion, so that it stays there until they are gone."""
    for host in sorted(remembered.placement):
        if host in present.draining:
            workers = inputs.seen_hosts[host].snapshot.pools.get(pool)
            if workers and workers.started + workers.draining > 0:
                return host
    return None


class Fit(NamedTuple):
    """How many workers of a pool fit onto hosts, what bounds them on which host, and what
    processes other than workers use there, where that makes the number smaller."""

    workers: int
    bound: str
    host: str = ""
    others: str = ""


def alone(claim: Claim, found: Mapping[str, Room], inputs: Inputs, silent: Container[str]) -> Fit:
    """How many workers this pool could have if it were the only one."""
    fits = [
        _fit(claim, host, inputs, host in silent)
        for host, room in sorted(found.items())
        if room.accepts or claim.placement.get(host)
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
    seen = inputs.seen_hosts[host].snapshot
    count, bound = carries(budget(seen, inputs.rules, planned), claim.need)
    undisturbed, _ = carries(budget(without_others(seen), inputs.rules, planned), claim.need)
    return Fit(count, bound, host, _others(seen, bound) if undisturbed > count else "")


def _others(host: HostSnapshot, bound: str) -> str:
    if bound == "cores":
        used = max(host.cpu_busy_cores - host.own_cpu_busy_cores, 0.0)
        return f"{used:.2g} of {host.cpu_cores:.3g} cores"
    used = max(host.memory_used_bytes - host.own_memory_bytes, 0)
    return f"{used / 2**30:.2g} of {host.memory_bytes / 2**30:.3g} GiB"


def _loads(
    state: State, inputs: Inputs, moving: frozenset[str], needs: Needs
) -> tuple[dict[str, Load], dict[str, Load]]:
    """What each host was asked for before this round, as by what workers need now; and of that,
    what belongs to pools that are not placed now."""
    planned: dict[str, Load] = defaultdict(Load)
    held: dict[str, Load] = defaultdict(Load)
    for name, remembered in state.pools.items():
        if not remembered.placement:
            continue
        each = needs.of(inputs.pools[name], remembered)
        stays = name not in moving
        for host, count in remembered.placement.items():
            planned[host].add(each, count)
            if stays:
                held[host].add(each, count)
    return planned, held
