"""Settings of strategies and policies: tables of a pool, read as what each of them declares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.config import ConfigError, Pool
from penstock.config.explain import explain, hint
from penstock.config.profiles import ProfileOverride
from penstock.decider.core.slots import counts_slots, demand_in_workers, inputs_in_slots
from penstock.decider.core.strategy import Demand, Strategy, StrategyInputs

_NO_SETTINGS: Mapping[str, Any] = {}
_MOST_READ = 50_000
_read: dict[tuple[int, int], tuple[object, Mapping[str, Any], Any]] = {}
"""Settings by the ids of their owner and table; both are referenced, so that no id is reused."""


def declared(taker: object) -> type[msgspec.Struct] | None:
    """The type of a strategy's or policy's settings; None for one that takes none.

    Raises:
        TypeError: ``options`` is something else.
    """
    kind = getattr(taker, "options", None)
    if kind is not None and not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        raise TypeError(f"its 'options' is {kind!r}, expected a msgspec.Struct type")
    return kind


def read(taker: object, table: Mapping[str, Any]) -> Any:
    """``table`` as what a strategy or policy declares; None for one that takes no settings.

    Tables stay as they are while they are in force, and are read once.
    """
    key = id(taker), id(table)
    if key not in _read:
        if len(_read) >= _MOST_READ:
            _read.clear()
        kind = declared(taker)
        _read[key] = taker, table, None if kind is None else msgspec.convert(table, kind)
    return _read[key][2]


def demand(name: str, strategies: Mapping[str, Strategy], inputs: StrategyInputs) -> Demand:
    """The demand of a strategy, given the pool's settings for it."""
    strategy = strategies[name]
    settings = read(strategy, inputs.pool.profile.options.get(name, _NO_SETTINGS))
    if settings is not None:
        inputs = msgspec.structs.replace(inputs, options=settings)
    slots = inputs.pool.job_slots
    if slots == 1 or not counts_slots(strategy):
        return strategy.demand(inputs)
    return demand_in_workers(strategy.demand(inputs_in_slots(inputs)), slots)


def check_name(
    name: str,
    strategies: Mapping[str, Strategy],
    settings: Sequence[str] = ProfileOverride.__struct_fields__,
) -> None:
    """The dotted name of a setting of a pool begins with one of ``settings``.

    Raises:
        ConfigError: says what may have been meant; ``calm`` is an option of a strategy.
    """
    first, _, rest = name.partition(".")
    if first in settings:
        return
    if first == "pools" and "." in rest:
        setting = rest.partition(".")[2]
        raise ConfigError(f"found {name!r}, expected a setting without its pool: {setting}")
    paths = (
        f"options.{strategy}.{option}"
        for strategy, taker in strategies.items()
        if (kind := declared(taker)) is not None
        for option in kind.__struct_fields__
    )
    options = [path for path in paths if path.rpartition(".")[2] == name]
    meant = f"did you mean {' or '.join(options)}?" if options else hint(name, settings)
    raise ConfigError(f"unknown setting {name!r}; {meant}")


def check(pool: Pool, strategies: Mapping[str, Strategy]) -> None:
    """A pool's tables of options for strategies; see `check_tables`."""
    profile, above = pool.profile, ("pools", pool.name, "options")
    check_tables("strategy", strategies, profile.options, [profile.strategy], above)


def check_tables(
    noun: str,
    installed: Mapping[str, Any],
    tables: Mapping[str, Mapping[str, Any]],
    used: Iterable[str],
    above: tuple[str, ...],
) -> None:
    """Every table of options is one that its strategy (or policy) takes, also of those not in use.

    Args:
        noun: what ``installed`` are: strategies or policies.
        installed: by name.
        tables: of options, by name.
        used: names that the pool uses.
        above: where in the file the tables stand.

    Raises:
        ConfigError: names pool, strategy and key, what was found and what was expected.
    """
    for name in dict.fromkeys((*tables, *used)):
        here = (*above, name)
        if name not in installed:
            raise ConfigError(f"{'.'.join(here)}: unknown {noun}; {hint(name, installed)}")
        _check(declared(installed[name]), tables.get(name, {}), here)


def _check(
    kind: type[msgspec.Struct] | None, table: Mapping[str, Any], here: tuple[str, ...]
) -> None:
    if kind is None:
        if table:
            keys = ", ".join(map(repr, table))
            raise ConfigError(f"{'.'.join(here)}: found {keys}, but it takes no settings")
        return
    try:
        msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(explain(str(error), table, {}, root=kind, above=here)) from error
    except Exception as error:  # a plug-in's own rule raised what it should not
        raise ConfigError(f"{'.'.join(here)}: refused with {error!r}") from error
