"""What the linter looks at, and what it finds."""

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
        pools: as they are used. seen_pools / seen_hosts: the last snapshots, by name.
    """

    settings: Settings
    pools: Mapping[str, Pool]
    seen_pools: Mapping[str, PoolSnapshot] = {}
    seen_hosts: Mapping[str, HostSnapshot] = {}

    def spawn(self, pool: Pool) -> tuple[float, str]:
        """Seconds to start a worker, and where the figure comes from."""
        seen = self.seen_pools.get(pool.name)
        if seen and seen.spawn and seen.spawn.count:
            return seen.spawn.p95_seconds, "measured"
        return PLAIN_SPAWN_SECONDS, "assumed"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong.

    Attributes:
        rule: which rule found it. level: ``error`` where it cannot work, else ``warning``.
        text: where, what was found, and what to do.
    """

    rule: str
    level: Level
    text: str


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A check; ``find`` yields sentences. ``about``: one line for people."""

    name: str
    level: Level
    about: str
    find: Callable[[Facts], Iterator[str]]


def seconds(value: float) -> str:
    """``3.1 s``."""
    return f"{value:.3g} s"
