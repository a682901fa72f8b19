"""Whether hosts begin what they are commanded: a host that does not gets no further workers.

A snapshot says who its host is and what it has, and whoever holds an executor's key can invent one.
It also says which command its host obeyed last. So a host that has joined gets workers once it has
obeyed a first, empty command; one that has not begun a command within a lease gives up what that
command added, and after five leases all it was planned to run. Where no host obeys, none is better
than another, and all of them are taken for good.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from penstock.decider.core.inputs import Inputs, Rules, SeenHost
from penstock.decider.core.state import Asked, State

GIVE_UP_LEASES = 5.0
"""A host that obeys nothing for so long keeps no workers in the plan."""


def pending(asked: Mapping[str, Asked], seen: Mapping[str, SeenHost]) -> dict[str, Asked]:
    """Without those hosts whose snapshot shows that they obeyed something newer."""
    return {host: each for host, each in asked.items() if not _obeyed(each, seen.get(host))}


def heedless(state: State, fresh: Collection[str], rules: Rules, now: float) -> frozenset[str]:
    """Of the fresh hosts those that get no further workers; none where all would be."""
    late = frozenset(
        host
        for host, each in state.asked.items()
        if host in fresh and (each.joined or _age(each, state, now) > rules.lease_seconds)
    )
    return late if len(late) < len(fresh) else frozenset()


def kept(
    placement: Mapping[str, int],
    pool: str,
    hosts: frozenset[str],
    state: State,
    rules: Rules,
    now: float,
    *,
    gives_up: bool,
) -> Mapping[str, int]:
    """A pool's placement without what heedless ``hosts`` have not begun.

    Args:
        gives_up: after five leases also without what they had before.
    """
    if hosts.isdisjoint(placement):
        return placement
    share = {}
    for host, count in placement.items():
        begun = count
        if host in hosts:
            leases = _age(state.asked[host], state, now) / rules.lease_seconds
            given_up = gives_up and leases > GIVE_UP_LEASES
            held = 0 if given_up else state.asked[host].held.get(pool, 0)
            begun = count if leases <= 1.0 else min(count, held)
        if begun:
            share[host] = begun
    return share


def repeated(
    asked: Mapping[str, Asked], hosts: Collection[str], rules: Rules, now: float
) -> dict[str, Asked]:
    """Of these hosts, those whose command is to be sent again: once a lease, as it may be lost."""
    return {
        host: replace(each, repeated_at=now)
        for host, each in asked.items()
        if host in hosts and now - max(each.at, each.repeated_at) > rules.lease_seconds
    }


def welcome(state: State, fresh: Collection[str], inputs: Inputs, now: float) -> State:
    """The state with hosts that were not there before: each is to obey a first command."""
    joined = [host for host in sorted(fresh) if host not in state.known]
    new = {host: _asked(host, state, inputs, now, joined=True) for host in joined}
    return replace(state, asked={**state.asked, **new}) if new else state


def ask(before: State, after: State, inputs: Inputs, now: float) -> State:
    """The state with what hosts are commanded now; earlier commands that are not begun count on."""
    new = {
        host: _asked(host, before, inputs, now, joined=False)
        for host in sorted(_changed(before, after))
        if host in after.known and host not in after.asked
    }
    return replace(after, asked={**after.asked, **new}) if new else after


def _asked(host: str, before: State, inputs: Inputs, now: float, *, joined: bool) -> Asked:
    seen = inputs.seen_hosts.get(host)
    return Asked(
        at=now,
        epoch=seen.snapshot.epoch if seen else 0,
        version=seen.snapshot.version if seen else 0,
        held={
            pool: each.placement[host]
            for pool, each in before.pools.items()
            if each.placement.get(host)
        },
        joined=joined,
    )


def _changed(before: State, after: State) -> set[str]:
    hosts: set[str] = set()
    for name, now in after.pools.items():
        old = before.pools.get(name)
        if old is None or old.placement is now.placement or old.placement == now.placement:
            continue
        hosts.update(_differing(old.placement, now.placement))
    return hosts


def _differing(old: Mapping[str, int], new: Mapping[str, int]) -> Iterable[str]:
    return (host for host in old.keys() | new.keys() if old.get(host, 0) != new.get(host, 0))


def _obeyed(asked: Asked, seen: SeenHost | None) -> bool:
    if seen is None:
        return False
    return (seen.snapshot.epoch, seen.snapshot.version) > (asked.epoch, asked.version)


def _age(asked: Asked, state: State, now: float) -> float:
    """Seconds in which the host could have begun and the decider could have heard of it."""
    return now - max(asked.at, state.watching_since)
