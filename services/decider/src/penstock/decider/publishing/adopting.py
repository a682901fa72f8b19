"""Settings as decisions are made under them: exactly as their record can be read again.

The decider writes its settings to the log, reads that record, and decides by what it has read. So
a value that JSON, or the declared type, would change is changed before the first decision, and a
replay starts from the same settings by construction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from penstock.config import ConfigError, Pool
from penstock.config.profiles import Options
from penstock.decider.core import options
from penstock.decider.core.digest import fingerprint
from penstock.decider.core.inputs import Rules
from penstock.decider.core.policies.policy import Policies
from penstock.decider.core.registry import Strategies
from penstock.events.envelope import encode
from penstock.events.orders import NO_ORDERS, Orders
from penstock.events.record import RECORDS, SettingsAdopted

T = TypeVar("T")

POOLS_A_PART = 500
"""Keeps each message well below the broker's usual limit of 1 MB."""
_FORMER_FORECASTS = frozenset({"aggressive", "moderate", "hint"})
"""Three words of one effect, which ``on`` has now."""


class Adopted(msgspec.Struct, frozen=True):
    """The settings of a round, and the operator's orders that stood above them."""

    pools: Mapping[str, Pool]
    rules: Rules
    orders: Orders = NO_ORDERS


def adopt(
    pools: Mapping[str, Pool], rules: Rules, strategies: Strategies, policies: Policies
) -> Adopted:
    """The settings that a decider works with.

    Raises:
        ConfigError: their record cannot be read again.
    """
    typed = {name: _with_typed_options(pool, strategies, policies) for name, pool in pools.items()}
    events = [RECORDS.decode(encode(event)) for event in records(typed, rules)]
    try:
        (adopted,) = _gather(event for event in events if isinstance(event, SettingsAdopted))
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"the settings cannot be recorded and read again ({error}); expected values that TOML "
            "and JSON have, and finite numbers"
        ) from error
    return adopted[1]


def records(
    pools: Mapping[str, Pool], rules: Rules, source: str = "", orders: Orders = NO_ORDERS
) -> list[SettingsAdopted]:
    """Settings as events, named by a fingerprint of their content; names in alphabetical order."""
    content: dict[str, Any] = msgspec.to_builtins(
        {"pools": dict(pools), "rules": rules}, order="deterministic"
    )
    if orders != NO_ORDERS:
        content["orders"] = msgspec.to_builtins(orders, order="deterministic")
    name, parts = fingerprint(content), list(in_parts(content["pools"], POOLS_A_PART)) or [{}]
    return [
        SettingsAdopted(
            source=source,
            fingerprint=name,
            part=number,
            parts=len(parts),
            rules=content["rules"],
            pools=part,
            orders=content.get("orders", {}),
        )
        for number, part in enumerate(parts, 1)
    ]


def gather(events: Iterable[SettingsAdopted]) -> dict[str, Adopted]:
    """Settings by fingerprint, of those whose parts are all there and can be read."""
    parts: dict[str, list[SettingsAdopted]] = {}
    for event in events:
        parts.setdefault(event.fingerprint, []).append(event)
    adopted: dict[str, Adopted] = {}
    for some in parts.values():
        try:
            adopted.update(_gather(some))
        except msgspec.ValidationError:  # a replay reports those rounds as a gap
            continue
    return adopted


def in_parts(table: Mapping[str, T], size: int) -> Iterator[dict[str, T]]:
    """A table in tables of at most ``size`` entries."""
    names = list(table)
    for start in range(0, len(names), size):
        yield {name: table[name] for name in names[start : start + size]}


def _gather(events: Iterable[SettingsAdopted]) -> list[tuple[str, Adopted]]:
    """The one fingerprint of these events with its settings; nothing where a part is missing."""
    parts = {event.part: event for event in events}
    first = next(iter(parts.values()))
    if len(parts) != first.parts:
        return []
    pools = {
        name: msgspec.convert(_without_former_words(pool), Pool)
        for number in sorted(parts)
        for name, pool in parts[number].pools.items()
    }
    rules, orders = (
        msgspec.convert(first.rules, Rules),
        msgspec.convert(first.orders, Orders),
    )
    return [(first.fingerprint, Adopted(pools, rules, orders))]


def _without_former_words(pool: Any) -> Any:
    """A recorded pool as today's settings say it: records of earlier versions stay readable."""
    if not isinstance(pool, dict) or not isinstance(profile := pool.get("profile"), dict):
        return pool
    if profile.get("forecast") not in _FORMER_FORECASTS:
        return pool
    return {**pool, "profile": {**profile, "forecast": "on"}}


def _with_typed_options(pool: Pool, strategies: Strategies, policies: Policies) -> Pool:
    """The pool with its tables of options as their owners declare them: 3 for a float is 3.0.

    Of a command the program only: decisions do not depend on the rest, which is not to be recorded.
    """
    profile = pool.profile
    profile = msgspec.structs.replace(
        profile,
        options=_typed(profile.options, strategies),
        policy_options=_typed(profile.policy_options, policies),
    )
    return msgspec.structs.replace(pool, profile=profile, command=pool.command[:1], environment=())


def _typed(tables: Options, owners: Mapping[str, object]) -> Options:
    return {name: _typed_table(table, owners.get(name)) for name, table in tables.items()}


def _typed_table(table: dict[str, Any], owner: object) -> dict[str, Any]:
    """Only what the table sets: defaults stay those of the program that recomputes a decision."""
    kind = options.declared(owner)
    if kind is None:
        return table
    typed: dict[str, Any] = msgspec.to_builtins(msgspec.convert(table, kind))
    return {name: typed.get(name, value) for name, value in table.items()}
