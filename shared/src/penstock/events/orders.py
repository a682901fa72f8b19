"""An operator's orders: a pool held at a number until a time, a host that gets no new workers.

The last order of each pool and host is also kept as a record, which deciders follow: history in the
event log ends, an order stands until it is lifted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal

import msgspec

from penstock.events.envelope import Codec, Event, Instant, Int64
from penstock.events.scaling import PoolEvent


class PoolHeld(PoolEvent, frozen=True, kw_only=True, tag=True):
    """An operator holds a pool's workers within bounds of their own until a time.

    Attributes:
        until: when it ends by itself.
        at_least: no fewer workers, as far as hosts can carry them.
        at_most: no more workers; None for no such bound.
        reason: why.
    """

    until: Instant
    at_least: Int64 = 0
    at_most: Int64 | None = None
    reason: str = ""


class PoolReleased(PoolEvent, frozen=True, kw_only=True, tag=True):
    """The pool is scaled by its settings again."""


class HostOrder(Event, frozen=True, kw_only=True):
    noun: ClassVar[str] = "host"
    key_field: ClassVar[str] = "host"

    host: str
    reason: str = ""


class HostPaused(HostOrder, frozen=True, kw_only=True, tag=True):
    """An operator keeps a host at the workers it has: a lost one is replaced, none is added."""


class HostDrained(HostOrder, frozen=True, kw_only=True, tag=True):
    """An operator empties a host: its workers finish and are replaced on other hosts."""


class HostResumed(HostOrder, frozen=True, kw_only=True, tag=True):
    """The host takes workers again."""


ORDERS = Codec(PoolHeld, PoolReleased, HostPaused, HostDrained, HostResumed)


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """A hold as decisions see it.

    Attributes:
        until: POSIX seconds.
        at_least: no fewer workers.
        at_most: no more workers; None for no such bound.
        by: origin of the order.
        reason: why.
    """

    until: float
    at_least: int = 0
    at_most: int | None = None
    by: str = ""
    reason: str = ""

    @property
    def bounds(self) -> str:
        """``at 5``, ``at 2 or more``, ``at 5 or fewer``, ``at 2 to 5``."""
        return hold_bounds(self.at_least, self.at_most)


class HostStanding(msgspec.Struct, frozen=True, kw_only=True):
    """A host's order as decisions see it: ``paused`` or ``drained``."""

    state: Literal["paused", "drained"]
    by: str = ""
    reason: str = ""


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """All orders in force.

    Attributes:
        holds: by pool.
        hosts: by host.
    """

    holds: Mapping[str, Hold] = {}
    hosts: Mapping[str, HostStanding] = {}

    def hold(self, pool: str, now: float) -> Hold | None:
        """The pool's hold, if it has not ended; ``now`` is POSIX seconds."""
        hold = self.holds.get(pool)
        return hold if hold is not None and now < hold.until else None

    def in_state(self, state: Literal["paused", "drained"]) -> frozenset[str]:
        """Names of the hosts with this order."""
        return frozenset(name for name, order in self.hosts.items() if order.state == state)


NO_ORDERS = Orders()


def in_force(events: Iterable[Event], now: float) -> Orders:
    """The orders in force, by the last event of each pool and host; names in alphabetical order.

    Args:
        events: in order.
        now: POSIX seconds.
    """
    holds, hosts = dict[str, Hold](), dict[str, HostStanding]()
    for event in events:
        if isinstance(event, PoolHeld | PoolReleased):
            holds.pop(event.pool, None)
        elif isinstance(event, HostOrder):
            hosts.pop(event.host, None)
        if isinstance(event, PoolHeld) and now < event.until.timestamp():
            holds[event.pool] = Hold(
                until=event.until.timestamp(),
                at_least=event.at_least,
                at_most=event.at_most,
                by=event.source,
                reason=event.reason,
            )
        elif isinstance(event, HostPaused | HostDrained):
            hosts[event.host] = HostStanding(
                state="paused" if isinstance(event, HostPaused) else "drained",
                by=event.source,
                reason=event.reason,
            )
    return Orders(holds=dict(sorted(holds.items())), hosts=dict(sorted(hosts.items())))


def hold_bounds(at_least: int, at_most: int | None) -> str:
    """The bounds of a hold: ``at 5``, ``at 2 or more``, ``at 5 or fewer``, ``at 2 to 5``."""
    if at_most is None:
        return f"at {at_least} or more"
    if at_least == at_most:
        return f"at {at_least}"
    return f"at {at_least} to {at_most}" if at_least else f"at {at_most} or fewer"
