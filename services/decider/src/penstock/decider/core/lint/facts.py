"""The facts that the linter checks, its rules and its findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import msgspec

from penstock.config import Pool, Settings
from penstock.events.snapshot import HostSnapshot, PoolSnapshot

PLAIN_SPAWN_SECONDS = 0.1
"""From the command to the first job taken, with a warm parent; see docs/benchmarks.md."""

Level = Literal["error", "warning"]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Settings, and what was measured lately; without a broker nothing was.

    Attributes:
        settings: all of them.
        pools: as they are used.
        measured_pools: the last snapshot of each pool, by name.
        measured_hosts: the last snapshot of each host, by name.
    """

    settings: Settings
    pools: Mapping[str, Pool]
    measured_pools: Mapping[str, PoolSnapshot] = {}
    measured_hosts: Mapping[str, HostSnapshot] = {}

    def spawn(self, pool: Pool) -> tuple[float, str]:
        """Seconds to start a worker, and where the figure comes from."""
        measured = self.measured_pools.get(pool.name)
        if measured and measured.spawn and measured.spawn.count:
            return measured.spawn.p95_seconds, "measured"
        return PLAIN_SPAWN_SECONDS, "assumed"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong.

    Attributes:
        rule: the name of the rule.
        level: ``error`` where it cannot work, else ``warning``.
        text: where, what was found, and what to do.
    """

    rule: str
    level: Level
    text: str


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A check.

    Attributes:
        name: as `penstock config check` shows it.
        level: of its findings.
        about: one line for people.
        find: yields a sentence for each finding.
    """

    name: str
    level: Level
    about: str
    find: Callable[[Facts], Iterator[str]]


def seconds(value: float) -> str:
    """``3.1 s``."""
    return f"{value:.3g} s"
