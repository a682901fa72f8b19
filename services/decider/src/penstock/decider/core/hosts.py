"""The roll call: which hosts take workers, keep theirs, or are gone."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.decider.core.inputs import Inputs, SeenHost
from penstock.decider.core.notices import Notice
from penstock.decider.core.state import State
from penstock.events.worker import HostJoined, HostLost


class RollCall(msgspec.Struct, frozen=True, kw_only=True):
    """Every host is in exactly one set.

    Attributes:
        fresh: takes workers. silent: keeps what it has (not heard of lately, not yet given up).
        draining: its executor is ending, its workers move. lost: silent beyond its lease.
        deaf: nothing at all was heard lately, so that the fault may be ours: nobody is lost.
        forsaken: all hosts are lost: nowhere to move anything, so that the plan stands.
    """

    fresh: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    draining: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    deaf: bool = False
    forsaken: bool = False


def call(state: State, inputs: Inputs, now: float) -> tuple[RollCall, State, list[Notice]]:
    """Who is there, the state that remembers it, and who joined or was lost since the last call."""
    deaf = _is_deaf(inputs, now)
    if deaf:  # silence counts from when we hear again
        state = msgspec.structs.replace(state, watching_since=now)
    sets: dict[str, set[str]] = {"fresh": set(), "silent": set(), "draining": set(), "lost": set()}
    for host in _all_hosts(state, inputs):
        sets[_standing(host, state, inputs, now)].add(host)
    forsaken = bool(sets["lost"]) and not sets["fresh"] | sets["silent"] | sets["draining"]
    found = RollCall(
        **{name: frozenset(hosts) for name, hosts in sets.items()}, deaf=deaf, forsaken=forsaken
    )
    notices = _joined(found, state, inputs.seen_hosts) + _lost(found, state, inputs, now)
    present = found.fresh | found.draining
    return (
        found,
        msgspec.structs.replace(
            state, known=state.known | present, lost=(state.lost - present) | found.lost
        ),
        notices,
    )


def _all_hosts(state: State, inputs: Inputs) -> list[str]:
    placed = {host for pool in state.pools.values() for host in pool.placement}
    return sorted(placed | set(inputs.seen_hosts))


def _is_deaf(inputs: Inputs, now: float) -> bool:
    heard = [
        *(seen.at for seen in inputs.seen_hosts.values()),
        *(seen.at for seen in inputs.seen_pools.values()),
    ]
    return not heard or now - max(heard) > inputs.rules.stale_seconds


def _standing(host: str, state: State, inputs: Inputs, now: float) -> str:
    seen, rules = inputs.seen_hosts.get(host), inputs.rules
    heard_at = seen.at if seen else 0.0
    if now - max(heard_at, state.watching_since) > rules.lease_seconds or (
        host in state.lost and heard_at <= state.watching_since
    ):
        return "lost"
    if seen is None or now - heard_at > rules.stale_seconds:
        return "silent"
    return "draining" if seen.snapshot.draining else "fresh"


def _joined(found: RollCall, state: State, seen: Mapping[str, SeenHost]) -> list[Notice]:
    new = (found.fresh | found.draining) - (state.known - state.lost)
    return [
        Notice(
            event=HostJoined,
            fields={
                "host": host,
                "cpu_cores": seen[host].snapshot.cpu_cores,
                "memory_bytes": seen[host].snapshot.memory_bytes,
            },
        )
        for host in sorted(new)
    ]


def _lost(found: RollCall, state: State, inputs: Inputs, now: float) -> list[Notice]:
    """A host that had nothing and was not heard of in our time was lost before it."""
    placed = {host for pool in state.pools.values() for host in pool.placement}
    seen, since = inputs.seen_hosts, state.watching_since
    return [
        Notice(
            event=HostLost,
            fields={
                "host": host,
                "silent_seconds": now - max(seen[host].at if host in seen else 0.0, since),
            },
        )
        for host in sorted(found.lost - state.lost)
        if host in placed or (host in seen and seen[host].at > since)
    ]
