"""Host liveness: which hosts take workers, keep theirs, or are lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from itertools import chain

import msgspec
from msgspec.structs import replace

from penstock.decider.core.hosts import pending
from penstock.decider.core.inputs import Inputs, MeasuredHost, MeasuredPool
from penstock.decider.core.notices import Notice
from penstock.decider.core.state import State
from penstock.events.orders import Orders
from penstock.events.snapshot import HostSnapshot
from penstock.events.worker import HostJoined, HostLeft, HostLost
from penstock.measuring.hosts import FORGET_LEASES


class HostLiveness(msgspec.Struct, frozen=True, kw_only=True):
    """Every host is in exactly one of the first six sets.

    Attributes:
        fresh: takes workers.
        silent: keeps what it has: without a recent snapshot, and not yet given up.
        draining: its executor is ending, or an operator drains it: its workers move.
        lost: silent beyond its lease.
        unresponsive: does not begin what it is commanded, takes nothing new; see `pending`.
        paused: by an operator: keeps what it has, takes nothing new.
        drained: those of ``draining`` that an operator drains: they keep nothing, even if no other
            host takes their workers.
        telemetry_gap: the decider received no measurement at all lately, so that the fault may be
            its own: no host is lost.
        all_hosts_lost: no host to move anything to, so that the plan stands.
    """

    fresh: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    draining: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    unresponsive: frozenset[str] = frozenset()
    paused: frozenset[str] = frozenset()
    drained: frozenset[str] = frozenset()
    telemetry_gap: bool = False
    all_hosts_lost: bool = False


def assess(
    state: State, inputs: Inputs, placed: Set[str], now: float
) -> tuple[HostLiveness, State, list[Notice]]:
    """The liveness of all hosts; ``placed`` are those that any pool is on.

    Returns:
        The liveness, the state that remembers it, and notices of the hosts that joined or were lost
        since the last round.
    """
    gap = _has_telemetry_gap(inputs, now)
    if gap:  # silence counts from when measurements come in again
        state = msgspec.structs.replace(state, watching_since=now)
    state = _without_forgotten(_without_obeyed(state, inputs), placed, inputs, now)
    hosts = _classified(placed | inputs.measured_hosts.keys(), state, inputs, now, gap)
    state = pending.welcome(state, hosts.fresh, inputs, now)
    hosts = _with_orders(_without_unresponsive(hosts, state, inputs, now), inputs.orders)
    alive = hosts.fresh.union(hosts.draining, hosts.unresponsive, hosts.paused)
    joined = state.joined.union(alive)
    lost = state.lost.difference(alive).union(hosts.lost)
    if joined == state.joined and lost == state.lost:  # as nearly always
        return hosts, state, []
    notices = _joined(hosts, state, inputs.measured_hosts)
    notices += _lost(hosts, placed, state, inputs, now)
    return hosts, msgspec.structs.replace(state, joined=joined, lost=lost), notices


def _without_obeyed(state: State, inputs: Inputs) -> State:
    if not state.pending:
        return state
    left = pending.unobeyed(state.pending, inputs.measured_hosts)
    return state if len(left) == len(state.pending) else replace(state, pending=left)


def _without_forgotten(state: State, placed: Set[str], inputs: Inputs, now: float) -> State:
    """Without hosts that are not remembered any more and have nothing."""
    if now - state.watching_since <= FORGET_LEASES * inputs.rules.lease_seconds:
        return state
    forgotten = state.joined.union(state.lost).difference(inputs.measured_hosts, placed)
    if not forgotten:
        return state
    return replace(
        state,
        joined=state.joined - forgotten,
        lost=state.lost - forgotten,
        pending={host: command for host, command in state.pending.items() if host not in forgotten},
    )


def _classified(
    names: Set[str], state: State, inputs: Inputs, now: float, gap: bool
) -> HostLiveness:
    sets: dict[str, list[str]] = {"fresh": [], "silent": [], "draining": [], "lost": []}
    for host in names:
        sets[_standing(host, state, inputs, now)].append(host)
    return HostLiveness(
        fresh=frozenset(sets["fresh"]),
        silent=frozenset(sets["silent"]),
        draining=frozenset(sets["draining"]),
        lost=frozenset(sets["lost"]),
        telemetry_gap=gap,
        all_hosts_lost=bool(sets["lost"]) and len(sets["lost"]) == len(names),
    )


def _without_unresponsive(
    hosts: HostLiveness, state: State, inputs: Inputs, now: float
) -> HostLiveness:
    late = pending.unresponsive(state, hosts.fresh, inputs.rules, now)
    return replace(hosts, fresh=hosts.fresh - late, unresponsive=late) if late else hosts


def _with_orders(hosts: HostLiveness, orders: Orders) -> HostLiveness:
    """The hosts that live, as an operator pauses and drains them."""
    if not orders.hosts:
        return hosts
    drained = (hosts.fresh | hosts.unresponsive) & orders.in_state("drained")
    paused = hosts.fresh & orders.in_state("paused")
    return replace(
        hosts,
        fresh=hosts.fresh - drained - paused,
        unresponsive=hosts.unresponsive - drained,
        draining=hosts.draining | drained,
        drained=drained,
        paused=paused,
    )


def _has_telemetry_gap(inputs: Inputs, now: float) -> bool:
    stale = inputs.rules.stale_seconds
    measurements: Iterable[MeasuredHost | MeasuredPool] = chain(
        inputs.measured_hosts.values(), inputs.measured_pools.values()
    )
    return all(now - measurement.at > stale for measurement in measurements)


def _standing(host: str, state: State, inputs: Inputs, now: float) -> str:
    measurement, rules = inputs.measured_hosts.get(host), inputs.rules
    since, received_at = state.watching_since, measurement.at if measurement else 0.0
    if now - (received_at if received_at > since else since) > rules.lease_seconds or (
        # a lost host is back only by a snapshot from after the gap, not by an old one
        host in state.lost and received_at <= since
    ):
        return "lost"
    if measurement is None or now - received_at > rules.stale_seconds:
        return "silent"
    return "draining" if measurement.snapshot.draining else "fresh"


def _joined(
    hosts: HostLiveness, state: State, measured: Mapping[str, MeasuredHost]
) -> list[Notice]:
    alive = hosts.fresh | hosts.draining | hosts.unresponsive | hosts.paused
    new = alive - (state.joined - state.lost)
    return [
        Notice(
            event=HostJoined,
            fields={
                "host": host,
                "cpu_cores": measured[host].snapshot.cpu_cores,
                "memory_bytes": measured[host].snapshot.memory_bytes,
            },
        )
        for host in sorted(new)
    ]


def _lost(
    hosts: HostLiveness, placed: Set[str], state: State, inputs: Inputs, now: float
) -> list[Notice]:
    """A host without workers whose last snapshot is older than this leader was lost before it."""
    measured, since = inputs.measured_hosts, state.watching_since
    notices = []
    for host in sorted(hosts.lost - state.lost):
        last = measured.get(host)
        if host not in placed and last is not None and _left(last.snapshot):
            if last.at > since:
                notices.append(Notice(event=HostLeft, fields={"host": host}))
        elif host in placed or (last is not None and last.at > since):
            silent = now - max(last.at if last else 0.0, since)
            fields = {"host": host, "silent_seconds": silent}
            notices.append(Notice(event=HostLost, fields=fields))
    return notices


def _left(snapshot: HostSnapshot) -> bool:
    """Whether this was the last snapshot of an executor that ended in order."""
    return snapshot.draining and not any(
        workers.started or workers.draining for workers in snapshot.pools.values()
    )
