"""Whatever has a name or an id that fits: each kind is looked up in memory or in an index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from urllib.parse import quote

import msgspec

from penstock.config.serving import serving
from penstock.console.core import tables
from penstock.console.core.job_query import JobQuery
from penstock.console.parts import Console
from penstock.console.read_models import suggestions
from penstock.console.read_models.store import Snapshot

_MOST = 8
"""Of a kind."""
_MOST_TITLES = 500
"""Batches and graphs whose titles are looked at, the newest."""
_LEAST_ID = 4
"""Letters of an id from which on jobs that begin so are looked for."""
_AFTER_ALL = "\U0010fffd"
"""Sorts behind all that begins with what stands before it."""


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was found.

    Attributes:
        kind: in a word, such as ``pool``.
        about: what a person knows it by besides its name; may be empty.
    """

    kind: str
    name: str
    path: str
    about: str = ""


async def find(console: Console, words: str) -> list[Hit]:
    """What fits, by kind: what is there now first, then jobs and what belongs to them.

    Args:
        console: its parts.
        words: a part of a name, the beginning of an id, or a whole fingerprint.
    """
    return [*_present(console, words.lower()), *await console.read(lambda r: [*_rows(r, words)])]


def _present(console: Console, part: str) -> Iterator[Hit]:
    """What the console knows without a look into its tables."""
    present = console.present
    queues = sorted(serving(present.settings).owners)
    yield from _named("pool", sorted(present.pools), "/pools/", part)
    yield from _named("queue", queues, "/queues/", part)
    yield from _named("host", (row.host for row in present.host_rows()), "/capacity/", part)
    workers = (row.worker for row in present.worker_rows())
    yield from _named("worker", workers, "/capacity/workers/", part)
    rules = (one for one in console.alerts.book.rules.values() if part in one.name.lower())
    for rule, _ in zip(rules, range(_MOST), strict=False):
        yield Hit(kind="alert rule", name=rule.name, path=f"/alerts/rules/{rule.id}")


def _named(kind: str, names: Iterable[str], folder: str, part: str) -> Iterator[Hit]:
    fitting = (name for name in names if part in name.lower())
    for name, _ in zip(fitting, range(_MOST), strict=False):
        yield Hit(kind=kind, name=name, path=f"{folder}{quote(name, safe='')}")


def _rows(rows: Snapshot, words: str) -> Iterator[Hit]:
    """Jobs and what belongs to them."""
    for name in suggestions.functions_with(rows, words)[:_MOST]:
        path = f"/jobs?q={quote(JobQuery(function=name).words)}"
        yield Hit(kind="function", name=name, path=path)
    if len(words) >= _LEAST_ID:
        begins = "WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"
        for job in rows.rows(tables.JOBS, begins, (words, words + _AFTER_ALL, _MOST)):
            folder = "workflows" if job.kind == "workflow" else "jobs"
            kind = "workflow" if job.kind == "workflow" else "job"
            about = f"{job.function} {job.state.value}"
            yield Hit(kind=kind, name=job.id, path=f"/{folder}/{job.id}", about=about)
    if decision := rows.row(tables.DECISIONS, words):
        about = f"{decision.current} → {decision.target}"
        path = f"/decisions/{quote(words)}"
        yield Hit(kind="decision", name=decision.pool, path=path, about=about)
    if rows.row(tables.FAILURES, words):
        yield Hit(kind="failure", name=words, path=f"/failures/{quote(words)}")
    yield from _titled(rows, words)


def _titled(rows: Snapshot, words: str) -> Iterator[Hit]:
    """Batches and graphs by a part of their title, or the beginning of their id."""
    part, newest = words.lower(), f"ORDER BY created_us DESC LIMIT {_MOST_TITLES}"
    batches = (
        Hit(kind="batch", name=one.title or one.id, path=f"/batches/{one.id}", about=one.state)
        for one in rows.rows(tables.BATCHES, newest)
        if part in one.title.lower() or one.id.startswith(words)
    )
    graphs = (
        Hit(
            kind="workflow",
            name=one.definition or one.title or one.id,
            path=f"/workflows/{one.id}",
            about=one.state,
        )
        for one in rows.rows(tables.GRAPHS, newest)
        if part in f"{one.definition} {one.title}".lower() or one.id.startswith(words)
    )
    for hits in (batches, graphs):
        yield from (hit for hit, _ in zip(hits, range(_MOST), strict=False))
