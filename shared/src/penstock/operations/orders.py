"""Gives and reads an operator's orders: holds of pools, pauses and drains of hosts."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from datetime import datetime

from penstock.bus.protocol import Bus, Outgoing, Stored
from penstock.events.envelope import Event, MalformedEvent, encode, utc_now
from penstock.events.orders import (
    ORDERS,
    HostDrained,
    HostOrder,
    HostPaused,
    HostResumed,
    Orders,
    PoolHeld,
    PoolReleased,
    in_force,
)
from penstock.events.subjects import Subjects, check_name

log = logging.getLogger("penstock.operations")

MOST_ORDERS = 1_000
"""Orders that count at a time: all of them are recorded together with each change."""
LONGEST_REASON = 200

Order = PoolHeld | PoolReleased | HostPaused | HostDrained | HostResumed


class OperatorOrders:
    """Gives orders; ``source`` is what events and records name as the origin."""

    def __init__(self, bus: Bus, subjects: Subjects, source: str) -> None:
        self._bus, self._subjects, self._source = bus, subjects, source

    async def hold(
        self, pool: str, until: datetime, at_least: int, at_most: int | None, reason: str = ""
    ) -> PoolHeld:
        """Holds a pool's workers within bounds until a time; replaces an earlier hold.

        Args:
            pool: its name.
            until: when the hold ends by itself.
            at_least: no fewer workers, as far as hosts can carry them.
            at_most: no more workers; None for no such bound.
            reason: why; its first 200 characters are kept.

        Raises:
            BusError: the order was not stored.
            BadName: no pool can have this name.
        """
        event = PoolHeld(
            source=self._source,
            pool=check_name("pool", pool),
            until=until,
            at_least=at_least,
            at_most=at_most,
            reason=reason[:LONGEST_REASON],
        )
        await self._give("hold", event)
        return event

    async def release(self, pool: str) -> None:
        """Ends the hold of a pool. Idempotent. Raises BusError, BadName."""
        await self._give("hold", PoolReleased(source=self._source, pool=check_name("pool", pool)))

    async def set_host(self, kind: type[HostOrder], host: str, reason: str = "") -> None:
        """Pauses, drains or resumes a host. Idempotent. Raises BusError, BadName."""
        name = check_name("host", host)
        await self._give(
            "host", kind(source=self._source, host=name, reason=reason[:LONGEST_REASON])
        )

    async def _give(self, record: str, event: Event) -> None:
        """The record first: the record is what counts, the event is history."""
        subject = self._subjects.state(record, event.key)
        await self._bus.append(Outgoing(subject, encode(event)))
        await self._bus.append(Outgoing(self._subjects.event(event), encode(event)))


def patterns(subjects: Subjects) -> list[str]:
    """Subjects of the records."""
    return [subjects.state("hold", "*"), subjects.state("host", "*")]


async def read_orders(bus: Bus, subjects: Subjects) -> Orders:
    """The orders in force. Raises BusError."""
    orders = [order async for _, order in stored_orders(bus, subjects)]
    return in_force(orders, utc_now().timestamp())


async def stored_orders(bus: Bus, subjects: Subjects) -> AsyncIterator[tuple[int, Order]]:
    """The last order of each pool and host with its sequence, also of those that have ended.

    Raises:
        BusError
    """
    for pattern in patterns(subjects):
        for stored in await bus.history(subjects.state_stream, pattern, 10 * MOST_ORDERS):
            if (order := read(stored)) is not None:
                yield stored.sequence, order


def read(stored: Stored) -> Order | None:
    """The order of a record; None, and a line in the log, where it cannot be read."""
    try:
        event = ORDERS.decode(stored.body)
    except MalformedEvent as error:
        log.warning("%s is no order: %s", stored.subject, error)
        return None
    is_own = isinstance(event, Order) and event.key == stored.subject.rpartition(".")[2]
    return event if is_own else None  # type: ignore[return-value]
