"""The hosts as rooms to place workers in, from the roll call and what is planned already."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.decider.core.capacity import Budget, Need, Room, budget, carries, need
from penstock.decider.core.fairshare import Claim
from penstock.decider.core.hosts import RollCall
from penstock.decider.core.inputs import Inputs
from penstock.decider.core.state import PoolState, State


def open_rooms(
    present: RollCall, state: State, inputs: Inputs, moving: frozenset[str]
) -> dict[str, Room]:
    """A room for each host that is not lost, holding all pools but those that are to be placed.

    A silent host has exactly the room that it was planned to need. A draining host keeps its share
    only while there is no other to take it.
    """
    found: dict[str, Room] = {}
    needs = {
        name: need(seen.snapshot if seen else None, pool.profile)
        for name, pool in inputs.pools.items()
        for seen in (inputs.seen_pools.get(name),)
    }
    planned_on = _planned(state, needs)
    for host in sorted(present.fresh | present.silent | present.draining):
        planned = planned_on.get(host, Budget(0, 0, 0))
        limit = (
            planned
            if host in present.silent
            else budget(inputs.seen_hosts[host].snapshot, inputs.rules, planned)
        )
        draining = host in present.draining
        found[host] = Room(
            host,
            limit,
            accepts=host in present.fresh,
            keeps=not draining or not present.fresh,
        )
    _hold_the_others(found, state, moving, needs)
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


def alone(claim: Claim, found: Mapping[str, Room]) -> tuple[int, str, str]:
    """How many workers this pool could have if it were the only one; what bounds it, and where."""
    counts = [
        (carries(room.limit, claim.need), host)
        for host, room in sorted(found.items())
        if room.accepts or claim.placement.get(host)
    ]
    if not counts:
        return 0, "hosts", ""
    (_, bound), host = max(counts, key=lambda each: each[0][0])
    if claim.one_host:
        return max(count for (count, _), _ in counts), bound, host
    return sum(count for (count, _), _ in counts), bound, host


def _planned(state: State, needs: dict[str, Need]) -> dict[str, Budget]:
    """What each host was asked for before this round, as by what workers need now."""
    found: dict[str, Budget] = {}
    for name, remembered in state.pools.items():
        each = needs[name]
        for host, count in remembered.placement.items():
            sofar = found.get(host, Budget(0, 0, 0))
            found[host] = Budget(
                sofar.cpu_cores + each.cpu_cores * count,
                sofar.memory_bytes + each.memory_bytes * count,
                sofar.workers + count,
            )
    return found


def _hold_the_others(
    found: dict[str, Room], state: State, moving: frozenset[str], needs: dict[str, Need]
) -> None:
    for name, remembered in state.pools.items():
        if name not in moving:
            for host, count in remembered.placement.items():
                if host in found:
                    found[host].add(needs[name], count)
