"""The decider's state between rounds. All of it can be restored from the streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from penstock.events.scaling import ScalingDecisionMade, WorkersScaled

Memories = Mapping[str, Mapping[str, Any]]
"""The memories of policies, by name."""


class PoolState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One pool. Times are POSIX seconds of the broker's clock.

    Attributes:
        placement: planned workers by host; hosts without any are left out.
        up_at: the last step up.
        down_at: the last step down.
        placed_at: the last change of placement.
        breached_at: since when the oldest job is late.
        predicted_at: when a breach that still threatens was last announced.
        burning: the worst pace announced since the error budget was last used no faster than it
            may be.
        memory: what the pool's strategy remembers; only the strategy reads it.
        policies: what the pool's policies remember, by name.
    """

    placement: dict[str, int] = {}
    up_at: float | None = None
    down_at: float | None = None
    placed_at: float | None = None
    breached_at: float | None = None
    predicted_at: float | None = None
    burning: str = ""
    memory: Mapping[str, Any] = {}
    policies: Memories = {}

    @property
    def workers(self) -> int:
        return sum(self.placement.values())


class HostAdvice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The advice given on the number of hosts. A new leader starts without and gives it anew.

    Attributes:
        looked_at: when the number was last counted, POSIX seconds.
        advised: the number advised last; 0 for none.
        direction: whether more (1) or fewer (-1) were needed ever ``since``.
        since: see ``direction``.
        needed: the number that was enough, or too many, all that time.
    """

    looked_at: float = 0.0
    advised: int = 0
    direction: int = 0
    since: float = 0.0
    needed: int = 0


class PendingCommand(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command whose beginning no snapshot of its host shows yet; see `hosts.pending`.

    Attributes:
        at: when it was sent first, POSIX seconds.
        epoch: of the command that the host had obeyed by then.
        version: likewise.
        held: workers by pool that it was planned to run before.
        joined: it is the host's first command.
        repeated_at: when it was sent last, POSIX seconds.
    """

    at: float
    epoch: int = 0
    version: int = 0
    held: dict[str, int] = {}
    joined: bool = False
    repeated_at: float = 0.0


class State(msgspec.Struct, frozen=True, kw_only=True):
    """All pools and hosts.

    Attributes:
        pools: by name.
        joined: hosts that were announced as joined. Recorded as ``known``.
        lost: those of them announced as lost.
        watching_since: silence before this moment proves nothing (the decider started, or received
            no measurement at all).
        advice: about the number of hosts.
        pending: by host, commands that are not begun. Recorded as ``asked``.
    """

    pools: dict[str, PoolState] = {}
    joined: frozenset[str] = msgspec.field(default=frozenset(), name="known")
    lost: frozenset[str] = frozenset()
    watching_since: float = 0.0
    advice: HostAdvice = HostAdvice()
    pending: dict[str, PendingCommand] = msgspec.field(default_factory=dict, name="asked")


def restore(
    pools: Iterable[str],
    decisions: Mapping[str, ScalingDecisionMade],
    commands: Mapping[str, WorkersScaled],
    now: float,
) -> State:
    """The state that a new leader starts from.

    Commands are fenced, decisions are not: where workers are comes from the commands, and a
    decision gives the rest (and the placement where no command was ever sent).

    Args:
        pools: names of the configured pools.
        decisions: each pool's last.
        commands: each host's last.
        now: POSIX seconds, broker's clock.
    """
    placed = placements(commands)
    states = {
        name: msgspec.structs.replace(
            _remembered(decisions.get(name)),
            **({"placement": placed.get(name, {})} if commands else {}),
        )
        for name in pools
    }
    pending = {  # a new leader sends all commands anew, in its own epoch
        host: PendingCommand(
            at=now, epoch=command.epoch, version=command.version, held=_positive(command.pools)
        )
        for host, command in sorted(commands.items())
    }
    return State(pools=states, joined=frozenset(commands), watching_since=now, pending=pending)


def _positive(pools: Mapping[str, int]) -> dict[str, int]:
    return {pool: workers for pool, workers in pools.items() if workers > 0}


def placements(commands: Mapping[str, WorkersScaled]) -> dict[str, dict[str, int]]:
    """Workers by pool and host, from commands (which are by host and pool)."""
    by_pool: dict[str, dict[str, int]] = {}
    for host, command in sorted(commands.items()):
        for pool, workers in command.pools.items():
            if workers > 0:
                by_pool.setdefault(pool, {})[host] = workers
    return by_pool


def dump(state: PoolState) -> dict[str, Any]:
    """For the decision event's ``state``."""
    fields: dict[str, Any] = msgspec.to_builtins(state)
    return fields


def _remembered(decision: ScalingDecisionMade | None) -> PoolState:
    if decision is None:
        return PoolState()
    try:
        return msgspec.convert(decision.state, PoolState)
    except msgspec.ValidationError:  # of another version: where the workers are is enough
        return PoolState() if decision.advice else PoolState(placement=dict(decision.placement))
