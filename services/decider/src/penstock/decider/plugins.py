"""Strategies and policies of installed packages.

They are found by the entry-point groups `penstock.strategies` and `penstock.policies`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from importlib.metadata import entry_points
from typing import Any, TypeVar

import msgspec

from penstock.decider.core import options
from penstock.decider.core.policies.policy import Policies, Policy
from penstock.decider.core.policies.shipped import SHIPPED
from penstock.decider.core.registry import BUILTIN, Strategies, with_installed
from penstock.decider.core.strategy import Strategy

log = logging.getLogger("penstock.decider")

T = TypeVar("T")

GROUP = "penstock.strategies"
POLICIES_GROUP = "penstock.policies"
GROUPS = (GROUP, POLICIES_GROUP)


def strategies() -> Strategies:
    """All strategies or policies: those that ship and those installed.

    An entry point's name is the strategy's name; it points to an instance, or to a class that can
    be made without arguments.
    """
    return with_installed(_installed(GROUP, "strategy", BUILTIN, _strategy))


def policies() -> Policies:
    """All strategies or policies: those that ship and those installed.

    An entry point's name is the policy's name; it points to a `Policy`.
    """
    return {**SHIPPED, **_installed(POLICIES_GROUP, "policy", SHIPPED, _policy)}


def _installed(
    group: str, noun: str, shipped: Collection[str], accept: Callable[[str, Any], T]
) -> dict[str, T]:
    """One that cannot be loaded, or is none, is reported and left out.

    Args:
        group: of the entry points.
        noun: for log lines.
        shipped: names of those that ship.
        accept: makes the strategy or policy of a name and a loaded object, or raises.
    """
    loaded: dict[str, T] = {}
    for point in entry_points(group=group):
        try:
            accepted = accept(point.name, point.load())
            options.declared(accepted)
        except Exception as error:
            log.error("%s %s (%s) cannot be loaded: %r", noun, point.name, point.value, error)
            continue
        if point.name in shipped:
            log.warning("%s %s of %s replaces the one that ships", noun, point.name, point.value)
        loaded[point.name] = accepted
    return loaded


def _strategy(name: str, loaded: Any) -> Strategy:
    strategy: Strategy = loaded() if isinstance(loaded, type) else loaded
    if not callable(getattr(strategy, "demand", None)):
        raise TypeError(f"{loaded!r} has no method 'demand'")
    return strategy


def _policy(name: str, loaded: Any) -> Policy:
    if not isinstance(loaded, Policy):
        raise TypeError(f"{loaded!r} is no penstock.decider.core.policies.policy.Policy")
    return msgspec.structs.replace(loaded, name=name)
