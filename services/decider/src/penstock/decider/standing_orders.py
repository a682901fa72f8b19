"""An operator's orders as the decider follows them: none ends by itself unseen, none is missed."""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.bus.protocol import Bus
from penstock.events.orders import Orders, in_force
from penstock.events.subjects import Subjects
from penstock.operations import orders
from penstock.operations.orders import MOST_ORDERS, Order
from penstock.runtime.poison_messages import skipping_poison

log = logging.getLogger("penstock.decider")


class StandingOrders:
    """Keeps the last order of each pool and host.

    Args:
        bus: of this process.
        subjects: of the installation.
        wake: called when an order came, so that all pools are decided at once.
    """

    def __init__(self, bus: Bus, subjects: Subjects, wake: Callable[[], None]) -> None:
        self._bus, self._subjects, self._wake = bus, subjects, wake
        self._last: dict[tuple[str, str], tuple[int, Order]] = {}
        self._complained = False

    async def load(self) -> None:
        """Reads all orders, as a leader must before its first round. Raises BusError."""
        async for sequence, order in orders.stored_orders(self._bus, self._subjects):
            self._take(sequence, order)

    async def follow(self) -> None:
        """Runs without end."""
        stream, patterns = self._subjects.state_stream, orders.patterns(self._subjects)
        async for stored in self._bus.follow(stream, patterns, start="last"):
            with skipping_poison(f"{stored.subject}, message {stored.sequence}"):
                order = orders.read(stored)
                if order is not None and self._take(stored.sequence, order):
                    self._wake()

    def in_force(self, now: float) -> Orders:
        """The orders of a round, at most a thousand; ``now`` is POSIX seconds."""
        orders_now = in_force((order for _, order in self._last.values()), now)
        if len(orders_now.holds) + len(orders_now.hosts) <= MOST_ORDERS:
            return orders_now
        if not self._complained:
            self._complained = True
            log.error("more than %d orders are in force: the others do not count", MOST_ORDERS)
        hosts = dict(list(orders_now.hosts.items())[:MOST_ORDERS])
        holds = dict(list(orders_now.holds.items())[: MOST_ORDERS - len(hosts)])
        return Orders(holds=holds, hosts=hosts)

    def _take(self, sequence: int, order: Order) -> bool:
        """Whether it is news. A record that was read late never replaces a newer one."""
        key = (order.noun, order.key)
        if key in self._last and sequence <= self._last[key][0]:
            return False
        self._last[key] = (sequence, order)
        log.info("order of %s: %s %s", order.source or "?", order.name, order.key)
        return True
