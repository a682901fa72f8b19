"""The rollups' tables: what a row stands for, and its columns. See also docs/pipeline.md.

Each table lies beside the lake as Parquet, ``rollups/<table>/grain=…/day=…/version=…/…parquet``;
:class:`penstock.pipeline.lake.rollups.Rollups` reads what counts of it. Times are UTC; a bucket has
the events that *happened* in it (their ``at``), however late they came.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

Grain = Literal["minute", "hour", "day"]
GRAINS: tuple[Grain, ...] = get_args(Grain)
SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
SKETCH_K = 200
"""KLL's accuracy parameter: rank error about 1.3 % (Karnin, Lang & Liberty 2016)."""


class Column(msgspec.Struct, frozen=True):
    """A column: its Spark type and what it says.

    Attributes:
        merge: how two rows of one key become one: ``sum``, ``max``, ``sketch``; ``derived`` from
            the other columns; ``key``.
    """

    kind: str
    about: str
    merge: Literal["key", "sum", "max", "sketch", "derived"] = "sum"


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table by name; ``columns`` in their order, without the partitions ``grain`` and ``day``."""

    name: str
    about: str
    columns: dict[str, Column]

    def named(self, *merges: str) -> list[str]:
        """Columns that merge in one of these ways."""
        return [name for name, column in self.columns.items() if column.merge in merges]

    @property
    def keys(self) -> list[str]:
        return self.named("key")


def _times(of: str, what: str) -> dict[str, Column]:
    shares = {
        f"{of}_{name}_seconds": Column("double", f"{share:.0%} took at most so long", "derived")
        for name, share in SHARES.items()
    }
    return {
        f"{of}_seconds": Column("double", f"sum over {what}"),
        f"{of}_squares": Column("double", "sum of their squares"),
        f"{of}_sketch": Column("binary", f"KLL sketch of doubles over {what}; mergeable", "sketch"),
        **shares,
    }


_BUCKET = {
    "start": Column("timestamp", "when the minute, hour or day begins", "key"),
    "pool": Column("string", "which serves the queue; the queue's name where none does", "key"),
}

JOBS = Table(
    name="jobs",
    about="What happened to jobs, by pool, queue and function.",
    columns={
        **_BUCKET,
        "queue": Column("string", "as the job's events name it; '' if not known", "key"),
        "function": Column("string", "the job's type; '' if its dispatch is not known", "key"),
        "arrivals": Column("bigint", "jobs due: dispatched, revived, or their delay over"),
        "started": Column("bigint", "attempts that began"),
        "late": Column("bigint", "of the started, later than the pool's sla_seconds at the time"),
        "completed": Column("bigint", "jobs that ended well"),
        "failed": Column("bigint", "attempts that failed"),
        "retried": Column("bigint", "failed attempts that go again"),
        "dead": Column("bigint", "jobs that ended as dead letters"),
        "cancelled": Column("bigint", "jobs cancelled, expired or skipped"),
        "lost": Column("bigint", "attempts given back or whose worker was lost; none counts"),
        **_times("pickup", "the started: from due to started"),
        **_times("run", "the completed and failed attempts"),
        "cpu_seconds": Column("double", "used by workers for completed and failed attempts"),
        "spark_cpu_seconds": Column("double", "used on Spark, where spark.measure_cost is on"),
    },
)
POOLS = Table(
    name="pools",
    about="Pools by their snapshots; a bucket without snapshots has no row.",
    columns={
        **_BUCKET,
        "snapshots": Column("bigint", "how many were taken"),
        "workers_sum": Column("bigint", "of workers ready, over the snapshots"),
        "workers_max": Column("bigint", "most workers ready", "max"),
        "worker_seconds": Column(
            "double", "cost: workers ready, a mean, for each minute that has snapshots", "derived"
        ),
        "waiting_sum": Column("bigint", "of jobs waiting, over the snapshots"),
        "waiting_max": Column("bigint", "most jobs waiting", "max"),
        "oldest_max_seconds": Column("double", "the longest any job waited so far", "max"),
    },
)
TABLES = {table.name: table for table in (JOBS, POOLS)}
