"""Strategies: pure functions from a pool's measurements to a demand, before any limit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from penstock.config import Pool
from penstock.events.scaling import Reason
from penstock.events.snapshot import PoolSnapshot

MOST_WORKERS = 1_000_000
"""A demand beyond this counts as this many: the pool's bounds come after."""
_MOST_WHOLE = 2**53
"""Fits into the 64 bits of a reason's workers, whatever a strategy multiplies."""


class StrategyInputs(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements and settings that a strategy works with.

    Attributes:
        pool: its settings.
        snapshot: the pool as measured.
        age_seconds: of the snapshot.
        current: workers planned now.
        now: POSIX seconds, broker's clock.
        memory: what the strategy's last demand for this pool gave it to remember.
        options: the pool's settings for this strategy, as what its ``options`` declares.
        slots: slots of one worker, where the strategy counts in slots (see :class:`Strategy`): all
            counts of workers here are of slots then. Else 1.
    """

    pool: Pool
    snapshot: PoolSnapshot
    age_seconds: float
    current: int
    now: float
    memory: Mapping[str, Any] = {}
    options: Any = None
    slots: int = 1


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """The workers that a pool needs, and why.

    Attributes:
        workers: may be broken; it is rounded up.
        reasons: the last one's ``workers`` is the rounded demand.
        predicted_pickup_seconds: for a job arriving now, given ``workers``; None leaves it to the
            decider's own estimate.
        memory: comes back with the next inputs; plain JSON values, few. It is kept in the decision,
            so that a new leader and a replay go on from it.
    """

    workers: float
    reasons: tuple[Reason, ...] = ()
    predicted_pickup_seconds: float | None = None
    memory: Mapping[str, Any] = {}


class Strategy(Protocol):
    """Add your own through the entry-point group ``penstock.strategies``; see strategies.md.

    One that takes settings has an attribute ``options``, a Struct type with a default for each:
    `[pools.NAME.options.STRATEGY]` is read as that when the decider starts, and refused if it does
    not fit; ``inputs.options`` is the value.

    One that calculates with run times has ``counts_slots = True``: where workers run several jobs
    at a time it is given slots in place of workers, and what it demands is rounded up to workers.
    """

    @property
    def name(self) -> str:
        """The value of ``strategy = "…"`` in `penstock.toml`."""
        ...

    def demand(self, inputs: StrategyInputs) -> Demand:
        """Pure: the same inputs give the same demand, and nothing else happens.

        State between two calls goes through ``memory``.
        """
        ...


def ask(
    name: str,
    workers: float,
    why: str,
    values: dict[str, Any] | None = None,
    memory: Mapping[str, Any] | None = None,
) -> Demand:
    """A demand with one reason.

    Args:
        name: the strategy's, and its rule's where it has several (``hybrid.drain``).
        workers: may be broken; it is rounded up.
        why: a clause: what the number rests on.
        values: the same as figures, by name with unit.
        memory: see `Demand`.
    """
    whole_workers = whole(workers)
    reason = Reason(
        step="strategy",
        rule=name,
        workers=whole_workers,
        text=f"{whole_workers} wanted by {name}: {why}",
        values=values or {},
    )
    return Demand(workers=workers, reasons=(reason,), memory=memory or {})


class BadDemand(ValueError):
    """A strategy returned something that is no number of workers."""


def whole(workers: float) -> int:
    """Rounds a demand up, as the reference does (26.7 is 27); 20.000000001 is still 20."""
    return min(max(math.ceil(workers - 1e-9), 0), _MOST_WHOLE)


def check(demand: Demand) -> Demand:
    """``demand`` with at most `MOST_WORKERS`.

    A pool that needs very many gets its maximum: were the demand refused, it would keep what it
    has, which may be none.

    Raises:
        BadDemand: it is not a finite number, or negative.
    """
    workers = demand.workers
    if not isinstance(workers, (int, float)) or not 0 <= workers < math.inf:
        raise BadDemand(f"found a demand of {workers!r}, expected workers, 0 or more")
    if workers <= MOST_WORKERS:
        return demand
    bound = Reason(
        step="strategy",
        rule="most",
        workers=MOST_WORKERS,
        text=f"{MOST_WORKERS}: no demand counts for more",
    )
    return msgspec.structs.replace(demand, workers=MOST_WORKERS, reasons=(*demand.reasons, bound))
