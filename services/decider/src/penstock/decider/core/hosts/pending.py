"""Commands that hosts have not begun yet: a host that begins none gets no further workers.

A snapshot names its host and what it has, so that a holder of an executor's key can invent hosts.
It also says which command its host obeyed last. So a host that has joined gets workers once it has
obeyed a first, empty command; one that has not begun a command within a lease gives up what that
command added, and after five leases all it was planned to run. Where no host obeys, none is better
than another, and all of them are taken for good.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec.structs import replace

from penstock.decider.core.inputs import Inputs, MeasuredHost, Rules
from penstock.decider.core.state import PendingCommand, State

GIVE_UP_LEASES = 5.0
"""A host that obeys nothing for so long keeps no workers in the plan."""

_NONE: frozenset[str] = frozenset()

Commands = Mapping[str, PendingCommand]
"""By host."""


def unobeyed(commands: Commands, measured: Mapping[str, MeasuredHost]) -> dict[str, PendingCommand]:
    """Without those of hosts whose snapshot shows that they obeyed something newer."""
    return {
        host: command
        for host, command in commands.items()
        if not _obeyed(command, measured.get(host))
    }


def unresponsive(state: State, fresh: Collection[str], rules: Rules, now: float) -> frozenset[str]:
    """The fresh hosts that get no further workers; none where all would be."""
    if not state.pending:
        return _NONE
    late = frozenset(
        host
        for host, command in state.pending.items()
        if host in fresh and (command.joined or _age(command, state, now) > rules.lease_seconds)
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
    """A pool's placement without what unresponsive ``hosts`` have not begun.

    Args:
        placement: workers by host.
        pool: its name.
        hosts: the unresponsive ones.
        state: of the round.
        rules: settings; ``lease_seconds`` counts.
        now: POSIX seconds.
        gives_up: after five leases also without what they had before.
    """
    if hosts.isdisjoint(placement):
        return placement
    share = {}
    for host, count in placement.items():
        begun = count
        if host in hosts:
            leases = _age(state.pending[host], state, now) / rules.lease_seconds
            given_up = gives_up and leases > GIVE_UP_LEASES
            held = 0 if given_up else state.pending[host].held.get(pool, 0)
            begun = count if leases <= 1.0 else min(count, held)
        if begun:
            share[host] = begun
    return share


def repeated(
    commands: Commands, hosts: Collection[str], rules: Rules, now: float
) -> dict[str, PendingCommand]:
    """The commands of these hosts that are to be sent again: once a lease, as they may be lost."""
    return {
        host: replace(command, repeated_at=now)
        for host, command in commands.items()
        if host in hosts and now - max(command.at, command.repeated_at) > rules.lease_seconds
    }


def welcome(state: State, fresh: Collection[str], inputs: Inputs, now: float) -> State:
    """The state with hosts that were not there before: each is to obey a first command."""
    if state.joined.issuperset(fresh):  # as nearly always
        return state
    joined = sorted(set(fresh) - state.joined)
    new = {host: _command(host, _planned(host, state), inputs, now, joined=True) for host in joined}
    return replace(state, pending={**state.pending, **new})


def add_commands(
    before: State,
    after: State,
    pools: Iterable[str],
    planned: Callable[[str], Mapping[str, int]],
    inputs: Inputs,
    now: float,
) -> State:
    """The state with what hosts are commanded now; earlier commands that are not begun count on.

    Args:
        before: the state before the round.
        after: the state after it.
        pools: those decided in the round: no other changes its placement.
        planned: a host's workers by pool before the round.
        inputs: of the round.
        now: POSIX seconds.
    """
    new = {
        host: _command(host, planned(host), inputs, now, joined=False)
        for host in sorted(_changed(before, after, pools))
        if host in after.joined and host not in after.pending
    }
    return replace(after, pending={**after.pending, **new}) if new else after


def _planned(host: str, state: State) -> dict[str, int]:
    return {name: pool.placement.get(host, 0) for name, pool in state.pools.items()}


def _command(
    host: str, planned: Mapping[str, int], inputs: Inputs, now: float, *, joined: bool
) -> PendingCommand:
    measurement = inputs.measured_hosts.get(host)
    return PendingCommand(
        at=now,
        epoch=measurement.snapshot.epoch if measurement else 0,
        version=measurement.snapshot.version if measurement else 0,
        held={name: count for name, count in planned.items() if count},
        joined=joined,
    )


def _changed(before: State, after: State, pools: Iterable[str]) -> set[str]:
    hosts: set[str] = set()
    for name in pools:
        old, now = before.pools[name], after.pools[name]
        if old.placement is now.placement or old.placement == now.placement:
            continue
        hosts.update(_differing(old.placement, now.placement))
    return hosts


def _differing(old: Mapping[str, int], new: Mapping[str, int]) -> Iterable[str]:
    return (host for host in old.keys() | new.keys() if old.get(host, 0) != new.get(host, 0))


def _obeyed(command: PendingCommand, measurement: MeasuredHost | None) -> bool:
    if measurement is None:
        return False
    snapshot = measurement.snapshot
    return (snapshot.epoch, snapshot.version) > (command.epoch, command.version)


def _age(command: PendingCommand, state: State, now: float) -> float:
    """Seconds in which the host could have begun and its snapshot reached the decider."""
    return now - max(command.at, state.watching_since)
