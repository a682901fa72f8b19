"""The roll call: which hosts take workers, keep theirs, or are gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

import msgspec
from msgspec.structs import replace

from penstock.decider.core.hosts import pending
from penstock.decider.core.inputs import Inputs, SeenHost, SeenPool
from penstock.decider.core.notices import Notice
from penstock.decider.core.state import State
from penstock.events.worker import HostJoined, HostLost
from penstock.measuring.hosts import FORGET_LEASES


class RollCall(msgspec.Struct, frozen=True, kw_only=True):
    """Every host is in exactly one set.

    Attributes:
        fresh: takes workers. silent: keeps what it has (not heard of lately, not yet given up).
        draining: its executor is ending, its workers move. lost: silent beyond its lease.
        heedless: does not begin what it is commanded, takes nothing new; see `heeding`.
        deaf: nothing at all was heard lately, so that the fault may be ours: nobody is lost.
        forsaken: all hosts are lost: nowhere to move anything, so that the plan stands.
    """

    fresh: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    draining: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    heedless: frozenset[str] = frozenset()
    deaf: bool = False
    forsaken: bool = False


def call(state: State, inputs: Inputs, now: float) -> tuple[RollCall, State, list[Notice]]:
    """Who is there, the state that remembers it, and who joined or was lost since the last call."""
    deaf = _is_deaf(inputs, now)
    if deaf:  # silence counts from when we hear again
        state = msgspec.structs.replace(state, watching_since=now)
    placed = _placed(state)
    state = _without_forgotten(_without_obeyed(state, inputs), placed, inputs, now)
    found = _sorted_out(placed.union(inputs.seen_hosts), state, inputs, now, deaf)
    state = pending.welcome(state, found.fresh, inputs, now)
    found = _without_heedless(found, state, inputs, now)
    there = found.fresh.union(found.draining, found.heedless)
    known = state.known.union(there)
    lost = state.lost.difference(there).union(found.lost)
    if known == state.known and lost == state.lost:  # as nearly always
        return found, state, []
    notices = _joined(found, state, inputs.seen_hosts) + _lost(found, placed, state, inputs, now)
    return found, msgspec.structs.replace(state, known=known, lost=lost), notices


def _placed(state: State) -> set[str]:
    """Hosts that any pool is on."""
    found: set[str] = set()
    for pool in state.pools.values():
        found.update(pool.placement)
    return found


def _without_obeyed(state: State, inputs: Inputs) -> State:
    if not state.asked:
        return state
    asked = pending.pending(state.asked, inputs.seen_hosts)
    return state if len(asked) == len(state.asked) else replace(state, asked=asked)


def _without_forgotten(state: State, placed: set[str], inputs: Inputs, now: float) -> State:
    """Hosts that are not remembered any more and have nothing."""
    if now - state.watching_since <= FORGET_LEASES * inputs.rules.lease_seconds:
        return state
    gone = state.known.union(state.lost).difference(inputs.seen_hosts, placed)
    if not gone:
        return state
    return replace(
        state,
        known=state.known - gone,
        lost=state.lost - gone,
        asked={host: each for host, each in state.asked.items() if host not in gone},
    )


def _sorted_out(every: set[str], state: State, inputs: Inputs, now: float, deaf: bool) -> RollCall:
    sets: dict[str, list[str]] = {"fresh": [], "silent": [], "draining": [], "lost": []}
    for host in every:
        sets[_standing(host, state, inputs, now)].append(host)
    return RollCall(
        fresh=frozenset(sets["fresh"]),
        silent=frozenset(sets["silent"]),
        draining=frozenset(sets["draining"]),
        lost=frozenset(sets["lost"]),
        deaf=deaf,
        forsaken=bool(sets["lost"]) and len(sets["lost"]) == len(every),
    )


def _without_heedless(found: RollCall, state: State, inputs: Inputs, now: float) -> RollCall:
    late = pending.heedless(state, found.fresh, inputs.rules, now)
    return replace(found, fresh=found.fresh - late, heedless=late) if late else found


def _is_deaf(inputs: Inputs, now: float) -> bool:
    stale = inputs.rules.stale_seconds
    heard: Iterable[SeenHost | SeenPool] = chain(
        inputs.seen_hosts.values(), inputs.seen_pools.values()
    )
    return all(now - seen.at > stale for seen in heard)


def _standing(host: str, state: State, inputs: Inputs, now: float) -> str:
    seen, rules, since = inputs.seen_hosts.get(host), inputs.rules, state.watching_since
    heard_at = seen.at if seen else 0.0
    if now - (heard_at if heard_at > since else since) > rules.lease_seconds or (
        host in state.lost and heard_at <= since
    ):
        return "lost"
    if seen is None or now - heard_at > rules.stale_seconds:
        return "silent"
    return "draining" if seen.snapshot.draining else "fresh"


def _joined(found: RollCall, state: State, seen: Mapping[str, SeenHost]) -> list[Notice]:
    new = (found.fresh | found.draining | found.heedless) - (state.known - state.lost)
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


def _lost(
    found: RollCall, placed: set[str], state: State, inputs: Inputs, now: float
) -> list[Notice]:
    """A host that had nothing and was not heard of in our time was lost before it."""
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
