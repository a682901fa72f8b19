"""Rounds one after the other: a strategy that wants what a list says, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec
from tests.unit.decider.given import NOW, host, snapshot

from penstock.config import Pool
from penstock.decider.core.conclude import Decision
from penstock.decider.core.decide import decide
from penstock.decider.core.inputs import Inputs, MeasuredHost, MeasuredPool, Rules
from penstock.decider.core.notices import Notice
from penstock.decider.core.policies.policy import Policies
from penstock.decider.core.policies.shipped import SHIPPED
from penstock.decider.core.state import PoolState, State, dump
from penstock.decider.core.strategy import Demand

Measured = dict[str, Any]


class Wants:
    """A strategy that wants a number."""

    name = "wants"

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def demand(self, inputs: Any) -> Demand:
        return Demand(workers=self.workers)


class Played(NamedTuple):
    """A round: how many seconds after NOW, its decision, what was told."""

    at: float
    decision: Decision
    notices: tuple[Notice, ...]

    @property
    def target(self) -> int:
        return self.decision.target

    @property
    def rules(self) -> list[str]:
        return [reason.rule for reason in self.decision.reasons]


def play(
    pool: Pool,
    steps: Iterable[tuple[float, int]],
    *,
    start: int = 0,
    policies: Policies = SHIPPED,
    seen: Callable[[float, int], Measured] | Measured | None = None,
    restart_at: float | None = None,
    begin: float = NOW,
) -> list[Played]:
    """Rounds at these seconds, wanting so many workers.

    Args:
        start: workers planned before. seen: what is measured, also by second and planned workers.
        restart_at: another leader takes over, with what the last decision's event says.
        begin: POSIX seconds of second 0.
    """
    state = State(
        pools={pool.name: PoolState(placement={"a": start} if start else {})},
        joined=frozenset({"a"}),
        watching_since=begin - 1000,
    )
    found = []
    for at, wanted in steps:
        now = begin + at
        if restart_at is not None and at >= restart_at:
            restart_at, state = None, _reread(state)
        fields = seen(at, state.pools[pool.name].workers) if callable(seen) else seen or {}
        outcome = decide(
            state,
            Inputs(
                pools={pool.name: pool},
                measured_pools={pool.name: MeasuredPool(snapshot(pool.name, **fields), now)},
                measured_hosts={"a": MeasuredHost(host("a", cores=10_000, memory=2**50), now)},
                strategies={"wants": Wants(wanted)},
                policies=policies,
                rules=Rules(),
            ),
            now,
        )
        state = outcome.state
        found.append(Played(at, outcome.decisions[0], outcome.notices))
    return found


def told(rounds: Iterable[Played], event: str) -> list[tuple[float, dict[str, Any]]]:
    """When an event was told, and with which fields."""
    return [
        (each.at, notice.fields)
        for each in rounds
        for notice in each.notices
        if notice.event.__name__ == event
    ]


def _reread(state: State) -> State:
    pools = {
        name: msgspec.convert(msgspec.json.decode(msgspec.json.encode(dump(each))), PoolState)
        for name, each in state.pools.items()
    }
    return msgspec.structs.replace(state, pools=pools)
