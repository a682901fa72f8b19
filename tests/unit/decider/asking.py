"""Asks one strategy as the decider does: with the pool's settings for it."""

from __future__ import annotations

from typing import Any

from tests.unit.decider.given import NOW, pool, snapshot

from penstock.decider.core import options
from penstock.decider.core.registry import BUILTIN
from penstock.decider.core.strategy import Demand, StrategyInputs, check, whole


def demand(
    name: str,
    settings: dict[str, Any] | None = None,
    *,
    profile: dict[str, Any] | None = None,
    strategies: Any = BUILTIN,
    current: int = 3,
    now: float = NOW,
    memory: Any = None,
    **measured: Any,
) -> Demand:
    """What it asks for, checked: the last reason's number is the demand.

    Args:
        settings: of this strategy; those of `combined`'s parts stand in ``profile["options"]``.
    """
    laid = {**(profile or {})}
    tables = {**laid.pop("options", {}), name: settings or {}}
    asked = pool(**{"strategy": name, "options": tables, **laid})
    options.check(asked, strategies)
    inputs = StrategyInputs(
        pool=asked,
        snapshot=snapshot(**measured),
        age_seconds=0.5,
        current=current,
        now=now,
        memory=memory or {},
    )
    found = check(options.demand(name, strategies, inputs))
    assert found.reasons[-1].workers == whole(found.workers)
    return found


def wanted(name: str, settings: dict[str, Any] | None = None, **given: Any) -> int:
    """The number alone."""
    return whole(demand(name, settings, **given).workers)
