"""The start-up rules of pools whose workers are consumers of another system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import msgspec
from msgspec import UNSET

from penstock.config.foreign import (
    PLACEHOLDERS,
    Drain,
    ready_of,
    unknown_placeholders,
    wrong_variable,
)
from penstock.config.foreign_presets import PRESETS
from penstock.config.profiles import Pool, PoolTable
from penstock.config.settings import Settings
from penstock.config.source_patterns import is_pattern, overlap

_OF_PROCESS = ("preset", "ready", "ready_seconds", "drain", "runtime_seconds", "environment")
"""Settings of how a command is run."""
_OF_QUEUES = ("queues", "queue")
_OF_JOBS = (
    "limit_jobs",
    "limit_job_cpu_seconds",
    "limit_job_memory_bytes",
    "middleware",
    "timeout_seconds",
    "tries",
)
"""Settings that only our own workers can obey: no message of another system is interrupted."""
KILL_SECONDS = 5.0
"""From the signal ``then`` of a drain to KILL."""
_WRONG_KINDS = {
    "exclusive": (
        "kind = 'exclusive' and 'command' exclude each other: nothing keeps two consumers of "
        "another system apart while a host is lost or one is replaced; use strategy = 'fixed' "
        "with max_workers = 1 where a moment with two does no harm"
    ),
    "spark": "kind = 'spark' and 'command' exclude each other: remove one of them",
}


def as_foreign(settings: Settings, pool: Pool, table: PoolTable) -> Pool:
    """The pool with its queues in another system: it has none of jobs."""
    source = settings.sources.get(table.source)
    return msgspec.structs.replace(
        pool,
        queues=(),
        source=table.source,
        source_queues=pool.queues,
        look_seconds=source.look_seconds if source else 0.0,
        command=table.command,
        preset=table.preset,
        ready=_or_preset(table, "ready"),
        ready_seconds=table.ready_seconds,
        drain=_or_preset(table, "drain"),
        runtime_seconds=table.runtime_seconds,
        environment=table.environment,
    )


def is_foreign(table: PoolTable) -> bool:
    """Whether a pool's workers are processes of another system."""
    return bool(table.command or (table.source and table.kind != "spark"))


def wrong_of_foreign(settings: Settings, table: PoolTable) -> str:
    """Why a pool cannot be, as far as other systems are concerned; empty where it can."""
    if not table.command and not (is_foreign(table) and table.advisor is True):
        return _without_command(table)
    if table.kind not in ("queue", "group"):
        return _WRONG_KINDS[table.kind]
    if set_here := [name for name in _OF_JOBS if getattr(table, name) is not UNSET]:
        return f"{set_here[0]} is for jobs of our own; the command's system has its own setting"
    if table.priorities:
        return "priorities are for queues of our own; name the queues in priority order instead"
    if unknown := unknown_placeholders(table.command):
        placeholders = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
        return f"command: found {{{unknown[0]}}}, expected one of {placeholders}"
    if not all(word and "\0" not in word for word in table.command):
        return "command: found an empty argument, or one with a zero byte"
    if wrong := next(filter(None, map(wrong_variable, table.environment)), ""):
        return f"environment: {wrong}"
    if wrong := _wrong_patterns(table):
        return f"queues: {wrong}"
    try:
        ready_of(table.ready)
    except ValueError as error:
        return f"ready: {error}"
    return _wrong_source(settings, table)


def shared_queue(pools: Mapping[str, Pool]) -> str:
    """Why two pools exclude each other: both take one queue of a source; empty where none do."""
    owner: dict[tuple[str, str], str] = {}
    for pool in pools.values():
        for queue in pool.source_queues if pool.source else ():
            other = owner.setdefault((pool.source, queue), pool.name)
            if other != pool.name:
                return (
                    f"queue {queue!r} of source {pool.source!r} is in pools {other!r} and "
                    f"{pool.name!r}; a queue belongs to one pool: remove it from one of them"
                )
    return _overlapping_patterns([(*key, name) for key, name in owner.items()])


def _overlapping_patterns(owners: Sequence[tuple[str, str, str]]) -> str:
    patterns = [one for one in owners if is_pattern(one[1])]
    for (source, pattern, pool), (other_source, other, other_pool) in combinations(patterns, 2):
        if source == other_source and overlap(pattern, other):
            return (
                f"patterns {pattern!r} (pool {pool!r}) and {other!r} (pool {other_pool!r}) of "
                f"source {source!r} match the same names, and a queue would be counted twice: "
                "change one of them, or name queues without a pattern"
            )
    return ""


def longest_drain_seconds(settings: Settings) -> float:
    """How long a worker of this host may take to end, of whatever pool."""
    tables = (table for table in settings.pools.values() if table.command)
    drains: list[Drain] = [_or_preset(table, "drain") for table in tables]
    foreign = (drain.seconds + KILL_SECONDS for drain in drains)
    return max(settings.host.drain_seconds, *foreign, 0.0)


def _or_preset(table: PoolTable, name: str) -> Any:
    """A setting as the table has it, or as its preset does where the table leaves it out."""
    own, preset = getattr(table, name), PRESETS.get(table.preset)
    return getattr(preset, name) if preset and own == getattr(PoolTable(), name) else own


def _without_command(table: PoolTable) -> str:
    if table.source and table.kind != "spark":
        return (
            "source names another system, whose consumers are to be run: set command, such as "
            '["celery", "-A", "shop", "worker", "-Q", "{queues}"], or advisor = true where another '
            "autoscaler runs them"
        )
    default = PoolTable()
    for name in _OF_PROCESS:
        if getattr(table, name) != getattr(default, name):
            return f"{name} is for workers of another system: set command, or remove it"
    return ""


def _wrong_patterns(table: PoolTable) -> str:
    """Patterns are given to a command as they are: few libraries read them."""
    pattern = next(filter(is_pattern, table.queues), "")
    names = next((f"{{{name}}}" for name in _OF_QUEUES if _names(table.command, name)), "")
    if not (pattern and names and table.preset) or PRESETS[table.preset].takes_patterns:
        return ""
    return (
        f"found the pattern {pattern!r} and {names} in command, but {table.preset} takes names of "
        "queues only: name the queues here, or have the application itself name those that it "
        f"takes, and remove {names}"
    )


def _names(command: Sequence[str], placeholder: str) -> bool:
    return any(f"{{{placeholder}}}" in argument for argument in command)


def _wrong_source(settings: Settings, table: PoolTable) -> str:
    if not table.source:
        if table.runtime_seconds:
            return "runtime_seconds is for queues of a source: set source, or remove it"
        if table.strategy == "fixed":
            return ""
        return (
            "command without source has nothing that it could be scaled by: set source, or "
            "strategy = 'fixed', which keeps min_workers processes"
        )
    names = sorted(settings.sources)
    if table.source in names:
        return ""
    return (
        f"source names {table.source[:80]!r}, expected a table [sources.NAME]: "
        f"{', '.join(names) or 'there is none'}"
    )
