"""Strategies of installed packages: the entry-point group `penstock.strategies`."""

from __future__ import annotations

import logging
from importlib.metadata import entry_points

from penstock.decider.core import options
from penstock.decider.core.registry import BUILTIN, Strategies, with_installed
from penstock.decider.core.strategy import Strategy

log = logging.getLogger("penstock.decider")

GROUP = "penstock.strategies"


def strategies() -> Strategies:
    """Those that ship and those installed; one that cannot be loaded is reported and left out.

    An entry point's name is the strategy's name; it points to an instance, or to a class that can
    be made without arguments.
    """
    found: dict[str, Strategy] = {}
    for point in entry_points(group=GROUP):
        try:
            loaded = point.load()
            strategy = loaded() if isinstance(loaded, type) else loaded
            if not callable(getattr(strategy, "demand", None)):
                raise TypeError(f"{point.value} has no method 'demand'")
            options.declared(strategy)
        except Exception as error:
            log.error("strategy %s (%s) cannot be loaded: %r", point.name, point.value, error)
            continue
        if point.name in BUILTIN:
            log.warning("strategy %s of %s replaces the one that ships", point.name, point.value)
        found[point.name] = strategy
    return with_installed(found)
