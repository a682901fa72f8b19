"""What the decider remembers between rounds. All of it comes back from the streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from penstock.events.scaling import ScalingDecisionMade, WorkersScaled

Memories = Mapping[str, Mapping[str, Any]]
"""What policies remember, by name."""


class PoolState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One pool. Times are POSIX seconds of the broker's clock.

    Attributes:
        placement: planned workers by host; hosts without any are left out.
        up_at / down_at: the last step in each direction. placed_at: the last change of placement.
        breached_at: since when the oldest job is late. predicted_at: when a breach that still
            threatens was last announced. burning: the worst pace announced since the error budget
            was last used no faster than it may be.
        memory: what the pool's strategy remembers; read by nobody else. policies: likewise.
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
    """What was said about the number of hosts. A new leader starts without: it says it again.

    Attributes:
        looked_at: when it was last looked at, POSIX seconds.
        told: the number told last; 0 for none.
        direction: whether more (1) or fewer (-1) were needed ever ``since``; needed: the number
            that was enough, or too many, all that time.
    """

    looked_at: float = 0.0
    told: int = 0
    direction: int = 0
    since: float = 0.0
    needed: int = 0


class Asked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command whose beginning no snapshot of its host shows yet; see `heeding`.

    Attributes:
        at: when it was sent first; repeated_at: when it was sent last. POSIX seconds.
        epoch / version: of the command that the host had obeyed by then.
        held: workers by pool that it was planned to run before.
        joined: it is the host's first command.
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
        known: hosts that were announced as joined. lost: those of them announced as lost.
        watching_since: silence before this moment proves nothing (start, or we were deaf).
        advice: about the number of hosts.
        asked: by host, commands that are not begun.
    """

    pools: dict[str, PoolState] = {}
    known: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    watching_since: float = 0.0
    advice: HostAdvice = HostAdvice()
    asked: dict[str, Asked] = {}


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
        decisions: each pool's last. commands: each host's last.
    """
    placed = placements(commands)
    states = {
        name: msgspec.structs.replace(
            _remembered(decisions.get(name)),
            **({"placement": placed.get(name, {})} if commands else {}),
        )
        for name in pools
    }
    asked = {  # a new leader says all commands again
        host: Asked(at=now, epoch=each.epoch, version=each.version, held=_positive(each.pools))
        for host, each in sorted(commands.items())
    }
    return State(pools=states, known=frozenset(commands), watching_since=now, asked=asked)


def _positive(pools: Mapping[str, int]) -> dict[str, int]:
    return {pool: workers for pool, workers in pools.items() if workers > 0}


def placements(commands: Mapping[str, WorkersScaled]) -> dict[str, dict[str, int]]:
    """Workers by pool and host, from commands (which are by host and pool)."""
    found: dict[str, dict[str, int]] = {}
    for host, command in sorted(commands.items()):
        for pool, workers in command.pools.items():
            if workers > 0:
                found.setdefault(pool, {})[host] = workers
    return found


def plans(state: State, hosts: Iterable[str]) -> dict[str, dict[str, int]]:
    """The other way round: the full plan of each host, also of those that get nothing."""
    found: dict[str, dict[str, int]] = {host: {} for host in hosts}
    for pool, remembered in state.pools.items():
        for host, workers in remembered.placement.items():
            found.setdefault(host, {})[pool] = workers
    return found


def dump(state: PoolState) -> dict[str, Any]:
    """For the decision event's ``state``."""
    found: dict[str, Any] = msgspec.to_builtins(state)
    return found


def _remembered(decision: ScalingDecisionMade | None) -> PoolState:
    if decision is None:
        return PoolState()
    try:
        return msgspec.convert(decision.state, PoolState)
    except msgspec.ValidationError:  # of another version: where the workers are is enough
        return PoolState() if decision.advice else PoolState(placement=dict(decision.placement))
