"""Settings of strategies: `[pools.NAME.options.STRATEGY]`, read as what the strategy declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.config import ConfigError, Pool
from penstock.config.explain import explain, hint
from penstock.decider.core.strategy import Demand, Strategy, StrategyInputs


def declared(strategy: Strategy) -> type[msgspec.Struct] | None:
    """The type of a strategy's settings; None for one that takes none.

    Raises:
        TypeError: ``options`` is something else.
    """
    kind = getattr(strategy, "options", None)
    if kind is not None and not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        raise TypeError(f"its 'options' is {kind!r}, expected a msgspec.Struct type")
    return kind


def demand(name: str, strategies: Mapping[str, Strategy], inputs: StrategyInputs) -> Demand:
    """Asks a strategy, with the pool's settings for it."""
    strategy, kind = strategies[name], declared(strategies[name])
    table = inputs.pool.profile.options.get(name, {})
    settings = None if kind is None else msgspec.convert(table, kind)
    return strategy.demand(msgspec.structs.replace(inputs, options=settings))


def check(pool: Pool, strategies: Mapping[str, Strategy]) -> None:
    """Every table of options is one that its strategy takes, also of those not in use.

    Raises:
        ConfigError: names pool, strategy and key, what was found and what was expected.
    """
    tables = pool.profile.options
    for name in dict.fromkeys((*tables, pool.profile.strategy)):
        here = ("pools", pool.name, "options", name)
        if name not in strategies:
            raise ConfigError(f"{'.'.join(here)}: unknown strategy; {hint(name, strategies)}")
        _check(declared(strategies[name]), tables.get(name, {}), here)


def _check(
    kind: type[msgspec.Struct] | None, table: Mapping[str, Any], here: tuple[str, ...]
) -> None:
    if kind is None:
        if table:
            found = ", ".join(map(repr, table))
            raise ConfigError(f"{'.'.join(here)}: found {found}, but it takes no settings")
        return
    try:
        msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(explain(str(error), table, {}, root=kind, above=here)) from error
