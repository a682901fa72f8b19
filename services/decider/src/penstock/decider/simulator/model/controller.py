"""The controller of a simulation: the production core, or a rule that it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from penstock.config import Pool
from penstock.decider.core.decide import Outcome, decide
from penstock.decider.core.hosts.planned import PlannedWorkers
from penstock.decider.core.inputs import Inputs, MeasuredHost, MeasuredPool, Rules
from penstock.decider.core.registry import Strategies
from penstock.decider.core.state import State
from penstock.decider.simulator.model.fleet import Fleet
from penstock.decider.simulator.model.meter import Meter
from penstock.events.snapshot import HostSnapshot

Plan = Mapping[str, int]
"""Workers by host."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of a controller. Times are seconds since the simulation's start.

    Attributes:
        now: when the queue was looked at.
        decided_at: when the decision is made.
        wakeup: why, None where nothing was measured.
        hosts: those that send snapshots.
    """

    now: float
    decided_at: float
    wakeup: str | None
    meter: Meter
    fleet: Fleet
    hosts: tuple[str, ...]


class Controller(Protocol):
    """Decides at each look."""

    def plan(self, look: Look) -> Plan | None:
        """Workers by host; None leaves it as it is."""
        ...


class Core:
    """The production core, fed with the same snapshots as in production.

    Args:
        origin: POSIX seconds of the simulation's start.
        watch: called with each outcome, for films and tests.
        jumps: of the broker's clock, as (when, by how many seconds).
    """

    def __init__(
        self,
        pool: Pool,
        strategies: Strategies,
        origin: float,
        rules: Rules | None = None,
        watch: Callable[[Outcome, float], None] | None = None,
        jumps: Sequence[tuple[float, float]] = (),
    ) -> None:
        self._pools, self._strategies = {pool.name: pool}, strategies
        self._pool, self._origin, self._rules = pool.name, origin, rules or Rules()
        self._watch, self._jumps = watch, jumps
        self._state, self._planned = State(watching_since=origin), PlannedWorkers()
        self._measured: dict[str, MeasuredPool] = {}
        self._hosts: dict[str, MeasuredHost] = {}

    def plan(self, look: Look) -> Plan | None:
        stored_at = self._posix(look.now)
        for host in look.hosts:
            before = self._hosts.get(host)
            snapshot = before.snapshot if before else _boundless(host)
            self._hosts[host] = MeasuredHost(snapshot, stored_at)
        if look.wakeup is not None:
            self._measured[self._pool] = MeasuredPool(
                look.meter.snapshot(look.now, look.wakeup), stored_at
            )
        outcome = decide(self._state, self._inputs(), self._posix(look.decided_at), self._planned)
        self._state = outcome.state
        if self._watch is not None:
            self._watch(outcome, look.decided_at)
        return {host: plan.get(self._pool, 0) for host, plan in outcome.plans.items()}

    def _posix(self, now: float) -> float:
        return self._origin + now + sum(by for when, by in self._jumps if when <= now)

    def _inputs(self) -> Inputs:
        return Inputs(
            pools=self._pools,
            measured_pools=self._measured,
            measured_hosts=self._hosts,
            strategies=self._strategies,
            rules=self._rules,
        )


def _boundless(host: str) -> HostSnapshot:
    """A host that never is what limits a pool."""
    return HostSnapshot(
        id=f"simulated-{host}", host=host, cpu_cores=1_000_000.0, memory_bytes=2**60
    )
