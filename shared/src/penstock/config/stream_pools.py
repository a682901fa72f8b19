"""The start-up rules of pools of Spark Workers whose source is streaming queries."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from penstock.config.profiles import BY_BATCHES, Pool, PoolTable
from penstock.config.settings import Settings

KIND = "spark-stream"
"""Of the source."""
STRATEGY = "batch_within"
_OF_JOBS = frozenset(
    {
        "deadline",
        "hybrid",
        "backlog_only",
        "simple_rate",
        "conservative",
        "jobs_per_worker",
        "queue_size",
        "throughput",
        "wait_time",
        "combined",
    }
)
"""Strategies that count jobs which a worker takes one by one."""


def is_stream(settings: Settings, table: PoolTable) -> bool:
    """Whether a pool's source is streaming queries."""
    source = settings.sources.get(table.source)
    return source is not None and source.kind == KIND


def as_stream(pool: Pool, table: PoolTable) -> Pool:
    """The pool with its queries, and the strategy that knows batches where none is set."""
    profile = pool.profile
    if table.strategy is UNSET and profile.strategy == "deadline":
        profile = msgspec.structs.replace(profile, strategy=STRATEGY)
    return msgspec.structs.replace(
        pool, profile=profile, source=table.source, source_queues=pool.queues
    )


def wrong_of_stream(settings: Settings, table: PoolTable, strategy: str) -> str:
    """Why a pool cannot be, as far as streaming queries are concerned; empty where it can.

    Args:
        strategy: of the pool, its profile worked out.
    """
    if not is_stream(settings, table):
        if strategy in BY_BATCHES:
            return (
                f"strategy {strategy!r} knows batches of streaming queries alone: set source to a "
                f"table [sources.NAME] with kind = {KIND!r}"
            )
        return _wrong_kind(settings, table)
    if table.kind != "spark":
        return (
            f"source {table.source!r} is streaming queries, whose tasks run on Spark Workers: set "
            f"kind = 'spark', found {table.kind!r}"
        )
    if table.command:
        return "command and streaming queries exclude each other: Spark Workers run their tasks"
    if not table.queues:
        return 'name the streaming queries that run on its Workers: queues = ["orders"]'
    if table.serves:
        return (
            "serves and a source exclude each other: tasks of jobs are no part of the batches that "
            "the pool is measured by; use a second pool of kind 'spark'"
        )
    if strategy in _OF_JOBS and (table.strategy is not UNSET or strategy != "deadline"):
        return (
            f"strategy {strategy!r} counts jobs that workers take one by one, and a batch of a "
            f"streaming query runs on all slots at once: use {STRATEGY!r}, or one that looks at no "
            "load ('fixed', 'schedule')"
        )
    return ""


def _wrong_kind(settings: Settings, table: PoolTable) -> str:
    if table.kind != "spark" or not table.source:
        return ""
    source = settings.sources.get(table.source)
    if source is None:
        names = ", ".join(sorted(settings.sources)) or "there is none"
        return f"source names {table.source[:80]!r}, expected a table [sources.NAME]: {names}"
    return (
        f"source {table.source!r} is of kind {source.kind!r}, whose messages are no tasks of "
        f"Spark: a pool of Spark Workers takes a source of kind {KIND!r}"
    )
