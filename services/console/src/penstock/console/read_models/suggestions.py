"""Values that a filter of jobs may have, by how they begin; each is looked up in an index."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.console.core import tables
from penstock.console.read_models.searching.arguments import suggested
from penstock.console.read_models.store import Snapshot
from penstock.console.read_models.summaries import TagItem

MOST = 20
_FUNCTIONS = """
WITH RECURSIVE names(name) AS (
    SELECT MIN(function) FROM jobs WHERE function >= ?1
    UNION ALL
    SELECT (SELECT MIN(function) FROM jobs WHERE function > name) FROM names
    WHERE name IS NOT NULL AND substr(name, 1, length(?1)) = ?1
)
SELECT name FROM names WHERE name IS NOT NULL AND substr(name, 1, length(?1)) = ?1 LIMIT ?2
"""
"""A look into the index for each function, however many jobs it has."""
_FUNCTIONS_WITH = """
WITH RECURSIVE names(name) AS (
    SELECT MIN(function) FROM jobs
    UNION ALL
    SELECT (SELECT MIN(function) FROM jobs WHERE function > name) FROM names WHERE name IS NOT NULL
    LIMIT ?3
)
SELECT name FROM names WHERE instr(lower(name), lower(?1)) > 0 LIMIT ?2
"""
_MOST_LOOKED_AT = 1_000
"""Functions, by name."""


def functions(rows: Snapshot, prefix: str) -> list[str]:
    """Functions of jobs."""
    return [str(name) for (name,) in rows.all(_FUNCTIONS, (prefix, MOST))]


def functions_with(rows: Snapshot, part: str) -> list[str]:
    """Functions of jobs by any part of their names, in whatever case."""
    return [str(name) for (name,) in rows.all(_FUNCTIONS_WITH, (part, MOST, _MOST_LOOKED_AT))]


def queues(rows: Snapshot, prefix: str) -> list[str]:
    """Queues that hold jobs."""
    names = {queue for queue, _ in rows.counts(tables.JOBS)}
    return sorted(name for name in names if name.startswith(prefix))[:MOST]


def arguments(rows: Snapshot, name: str, prefix: str) -> list[str]:
    """Values of an argument that is searched."""
    return suggested(rows, name, prefix, MOST)


def tags(items: Iterable[TagItem], prefix: str) -> list[str]:
    """Tags of the newest jobs, the most frequent first."""
    return [item.tag for item in items if item.tag.startswith(prefix)][:MOST]
