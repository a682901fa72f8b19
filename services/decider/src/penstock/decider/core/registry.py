"""The strategies by name: those that ship. The shell adds those of installed packages."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.config import ConfigError, Pool
from penstock.config.explain import hint
from penstock.decider.core import options
from penstock.decider.core.strategies.backlog_only import BacklogOnly
from penstock.decider.core.strategies.batch_within import BatchWithin
from penstock.decider.core.strategies.combined import Combined
from penstock.decider.core.strategies.conservative import Conservative
from penstock.decider.core.strategies.deadline.strategy import Deadline
from penstock.decider.core.strategies.fixed import Fixed
from penstock.decider.core.strategies.hybrid import Hybrid
from penstock.decider.core.strategies.jobs_per_worker import JobsPerWorker
from penstock.decider.core.strategies.queue_size import QueueSize
from penstock.decider.core.strategies.schedule import Schedule
from penstock.decider.core.strategies.simple_rate import SimpleRate
from penstock.decider.core.strategies.throughput import Throughput
from penstock.decider.core.strategies.wait_time import WaitTime
from penstock.decider.core.strategy import Strategy

Strategies = Mapping[str, Strategy]

_SHIPPED: tuple[Strategy, ...] = (
    Deadline(),
    Hybrid(),
    BacklogOnly(),
    SimpleRate(),
    Conservative(),
    JobsPerWorker(),
    QueueSize(),
    Throughput(),
    WaitTime(),
    Schedule(),
    BatchWithin(),
    Fixed(),
)


def with_installed(installed: Strategies) -> Strategies:
    """The shipped strategies, the given ones (they win), and `combined`, which mixes any."""
    parts = {**{strategy.name: strategy for strategy in _SHIPPED}, **installed}
    return {**parts, Combined.name: installed.get(Combined.name) or Combined(parts)}


BUILTIN: Strategies = with_installed({})


def check(pools: Mapping[str, Pool], strategies: Strategies) -> None:
    """Every pool's strategy exists and takes the pool's options.

    Raises:
        ConfigError: names the pool, what was found, and what was expected.
    """
    for pool in pools.values():
        name = pool.profile.strategy
        if pool.scalable and name not in strategies:
            raise ConfigError(
                f"pools.{pool.name}: unknown strategy {name!r}; {hint(name, strategies)}"
            )
        options.check(pool, strategies)
