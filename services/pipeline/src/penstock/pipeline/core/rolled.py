"""The state of the rollups: how far they go, and which version of each day counts."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Promise(msgspec.Struct, frozen=True):
    """A pool and what it promises, for the queues it serves."""

    pool: str
    sla_seconds: float


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The state after one refresh.

    Attributes:
        number: counts refreshes.
        through: last stream sequence in it, by part of the lake.
        day: newest folder ``day`` read so far, by part.
        versions: by partition (``jobs/grain=hour/day=2026-01-31``), the folder that counts.
        open: folder of the jobs that had not ended, by which later events find their function.
    """

    number: int = 0
    through: dict[str, int] = {}
    day: dict[str, str] = {}
    versions: dict[str, str] = {}
    open: str = ""

    def folders(self, table: str, grain: str, days: Iterable[str] | None = None) -> list[str]:
        """What counts of a table, of all days or of some."""
        wanted = None if days is None else set(days)
        return [
            f"{partition}/version={version}"
            for partition, version in sorted(self.versions.items())
            if partition.startswith(f"{table}/grain={grain}/")
            and (wanted is None or partition.rpartition("=")[2] in wanted)
        ]
