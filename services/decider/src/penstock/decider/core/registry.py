"""The strategies by name: those that ship. The shell adds those of installed packages."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from penstock.config import ConfigError, Pool
from penstock.decider.core.strategies.fixed import Fixed
from penstock.decider.core.strategies.hybrid import Hybrid
from penstock.decider.core.strategy import Strategy

Strategies = Mapping[str, Strategy]

BUILTIN: Strategies = {strategy.name: strategy for strategy in (Hybrid(), Fixed())}


def check(pools: Mapping[str, Pool], strategies: Strategies) -> None:
    """Every scaled pool's strategy exists.

    Raises:
        ConfigError: names the pool, what was found, and the nearest known name.
    """
    for pool in pools.values():
        name = pool.profile.strategy
        if pool.scalable and name not in strategies:
            near = difflib.get_close_matches(name, strategies, n=1)
            hint = (
                f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(strategies))}"
            )
            raise ConfigError(f"pools.{pool.name}: unknown strategy {name!r}; {hint}")
