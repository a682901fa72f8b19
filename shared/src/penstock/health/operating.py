"""What operators ordered, as facts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from msgspec.structs import replace

from penstock.events.orders import Orders
from penstock.health.facts import HostFacts


def with_orders(hosts: Iterable[HostFacts], orders: Orders) -> tuple[HostFacts, ...]:
    """Hosts with the operator's order about each."""
    return tuple(
        replace(host, order=f"{order.state}{_by(order.by, order.reason)}")
        if (order := orders.hosts.get(host.name))
        else host
        for host in hosts
    )


def holds(orders: Orders) -> tuple[str, ...]:
    """A sentence for each held pool."""
    return tuple(
        f"pool {pool} is held {hold.bounds} until "
        f"{datetime.fromtimestamp(hold.until, UTC):%Y-%m-%d %H:%M} UTC{_by(hold.by, hold.reason)}"
        for pool, hold in orders.holds.items()
    )


def _by(giver: str, reason: str) -> str:
    return f" by {giver or '?'}{': ' if reason else ''}{reason}"
