"""The board of pools and hosts as it was: the last snapshot, decision and order of each by then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from penstock.bus.protocol import Bus, Stored
from penstock.events.catalogue import ALL
from penstock.events.envelope import Event, MalformedEvent
from penstock.events.orders import (
    HostDrained,
    HostPaused,
    HostResumed,
    PoolHeld,
    PoolReleased,
)
from penstock.events.scaling import ScalingDecisionMade
from penstock.events.subjects import Subjects
from penstock.views.pool_board import Board

_OF_POOLS = (ScalingDecisionMade, PoolHeld, PoolReleased)
_OF_HOSTS = (HostPaused, HostDrained, HostResumed)
MOST_HOSTS = 2_000
"""Further hosts are not shown."""


class PastBoard(msgspec.Struct, frozen=True):
    """A board, and when the newest snapshot on it was stored; None without one."""

    board: Board
    newest_at: datetime | None


async def board_at(
    bus: Bus, subjects: Subjects, pools: Sequence[str], snapshot: int, event: int
) -> PastBoard:
    """The board by then: of each pool two messages at most, of each host two.

    Args:
        bus: a connection.
        subjects: of the installation.
        pools: names of pools.
        snapshot: sequence of the last snapshot that counts.
        event: sequence of the last event that counts.

    Raises:
        BusError: the streams cannot be read.
    """
    held = await bus.count(subjects.snapshots_stream, subjects.host_snapshot("*"))
    hosts = [name.rpartition(".")[2] for name in sorted(held)][:MOST_HOSTS]
    measured = await bus.last_of(
        subjects.snapshots_stream,
        [*map(subjects.pool_snapshot, pools), *map(subjects.host_snapshot, hosts)],
        before=snapshot + 1,
    )
    decided = await bus.last_of(
        subjects.events_stream,
        [
            *_names(subjects, "pool", pools, _OF_POOLS),
            *_names(subjects, "host", hosts, _OF_HOSTS),
        ],
        before=event + 1,
    )
    board = Board()
    for stored in (*_in_order(measured.values()), *_in_order(decided.values())):
        if (one := _event(stored)) is not None:
            board.take(one)
    return PastBoard(board, max((stored.at for stored in measured.values()), default=None))


def _names(
    subjects: Subjects, noun: str, keys: Iterable[str], kinds: Iterable[type[Event]]
) -> list[str]:
    names = [kind.__name__ for kind in kinds]
    return [subjects.events(noun, key, name) for key in keys for name in names]


def _in_order(messages: Iterable[Stored]) -> list[Stored]:
    """Of the orders about one pool or host the last one counts, whichever kind it is."""
    return sorted(messages, key=lambda stored: stored.sequence)


def _event(stored: Stored) -> Event | None:
    try:
        event = ALL.decode(stored.body)
    except MalformedEvent:
        return None
    return event if isinstance(event, Event) else None
