"""What operators ordered, and the settings that services work with, as facts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from msgspec.structs import replace

from penstock.config import Settings
from penstock.events.orders import Orders
from penstock.health.facts import HostFacts
from penstock.operations.settings_in_force import SettingsInForce

_NAMED = 5
"""Settings of one service that a sentence names."""


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


def settings_drift(services: Iterable[SettingsInForce], settings: Settings) -> tuple[str, ...]:
    """A sentence for each service that refused to reload, or runs with other settings."""
    if not settings.pools:  # those of a mere client
        return ()
    return tuple(sentence for one in services if (sentence := _drift(one, settings)))


def _drift(service: SettingsInForce, settings: Settings) -> str:
    if service.refused:
        return f"{service.name} refused to reload its settings: {service.refused}"
    changes = service.differences(settings)
    if not changes:
        return ""
    names = ", ".join(change.name for change in changes[:_NAMED])
    others = f" and {len(changes) - _NAMED} others" if len(changes) > _NAMED else ""
    needs_restart = service.service == "executor" and all(change.restart for change in changes)
    advice = "restart it" if needs_restart else "'penstock config reload'"
    return f"{service.name} runs with other settings than these ({names}{others}): {advice}"


def _by(giver: str, reason: str) -> str:
    return f" by {giver or '?'}{': ' if reason else ''}{reason}"
