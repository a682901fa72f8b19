"""The inputs of a round of decisions: measurements, settings, orders, strategies, policies."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import msgspec

from penstock.config import Pool, Settings
from penstock.decider.core.policies.policy import Policies
from penstock.decider.core.policies.shipped import SHIPPED
from penstock.decider.core.registry import Strategies
from penstock.events.orders import NO_ORDERS, Orders
from penstock.events.snapshot import HostSnapshot, PoolSnapshot
from penstock.measuring.hosts import HostBounds, remember


class MeasuredPool(msgspec.Struct, frozen=True, gc=False):
    """The newest snapshot of a pool.

    Attributes:
        snapshot: as the metrics service published it.
        at: when the broker stored it, POSIX seconds.
    """

    snapshot: PoolSnapshot
    at: float

    def age_seconds(self, now: float) -> float:
        """Age of the oldest figure in the snapshot that decisions rest on."""
        return max(now - self.at, 0.0) + self.snapshot.queue_age_seconds


class MeasuredHost(msgspec.Struct, frozen=True, gc=False):
    """The newest snapshot of a host.

    Attributes:
        snapshot: as the host's executor published it.
        at: when the broker stored it, POSIX seconds.
    """

    snapshot: HostSnapshot
    at: float


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that hold for all pools and hosts; see `penstock.config.settings`."""

    stale_seconds: float = 5.0
    lease_seconds: float = 6.0
    placement: Literal["spread", "pack"] = "spread"
    rebalance_seconds: float = 0.0
    reserve_cpu_cores: float = 0.5
    reserve_memory_bytes: int = 256 * 1024 * 1024
    max_cpu_share: float = 0.9
    max_memory_share: float = 0.85
    allowed_hosts: tuple[str, ...] = ()
    most_hosts: int = 1000

    @classmethod
    def of(cls, settings: Settings) -> Rules:
        host, decider = settings.host, settings.decider
        return cls(
            stale_seconds=decider.stale_seconds,
            lease_seconds=host.lease_seconds,
            placement=decider.placement,
            rebalance_seconds=decider.rebalance_seconds,
            reserve_cpu_cores=host.reserve_cpu_cores,
            reserve_memory_bytes=host.reserve_memory_bytes,
            max_cpu_share=host.max_cpu_share,
            max_memory_share=host.max_memory_share,
            allowed_hosts=settings.hosts.allowed,
            most_hosts=settings.hosts.most,
        )


def take_host(hosts: dict[str, MeasuredHost], measurement: MeasuredHost, rules: Rules) -> str:
    """Takes in a host's newest snapshot, in the order of the stream; forgets hosts long silent.

    Returns:
        Why it was refused; empty when it was taken.
    """
    bounds = HostBounds(
        allowed=rules.allowed_hosts, most=rules.most_hosts, lease_seconds=rules.lease_seconds
    )
    return remember(hosts, measurement.snapshot.host, measurement, bounds)


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """A round's inputs.

    Attributes:
        due: pools to decide now; None decides all. The others keep what they have, and only a round
            over all of them takes from one pool to give to another.
        orders: an operator's, which stand above the settings.
    """

    pools: Mapping[str, Pool]
    measured_pools: Mapping[str, MeasuredPool]
    measured_hosts: Mapping[str, MeasuredHost]
    strategies: Strategies
    rules: Rules
    policies: Policies = SHIPPED
    due: frozenset[str] | None = None
    orders: Orders = NO_ORDERS

    @property
    def due_pools(self) -> Collection[str]:
        return self.pools.keys() if self.due is None else self.due & self.pools.keys()
