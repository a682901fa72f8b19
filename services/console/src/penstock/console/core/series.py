"""Measurements over time in three resolutions, in chunks of an hour. Pure.

Of each stretch the largest value is kept: a peak is never averaged away.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

HOUR_SECONDS = 3600
_UNKNOWN = math.nan


class Tier(NamedTuple):
    """A resolution.

    Attributes:
        step_seconds: between two points; a divisor of an hour.
        kept_seconds: how long they are kept.
    """

    step_seconds: int
    kept_seconds: int


TIERS = (Tier(1, 900), Tier(10, 6 * HOUR_SECONDS), Tier(60, 14 * 24 * HOUR_SECONDS))
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "pool": (
        *("waiting", "oldest_seconds", "pickup_p99_seconds"),
        *("predicted_pickup_seconds", "ready", "target"),
        *("running", "arrival_per_second", "budget_used_share"),
    ),
    "host": ("busy_cores", "memory_used_bytes", "ready", "started"),
    "queue": ("finished_per_minute", "failed_per_minute"),
}
"""What is kept of each kind of thing."""
_MOST_NAMES = 1_000
"""Things of a kind; of further ones nothing is kept, so that no publisher fills the memory."""


class ChunkKey(NamedTuple):
    """An hour of one thing in one resolution; ``hour`` counts from 1970."""

    kind: str
    name: str
    step_seconds: int
    hour: int


class Points(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of measurements.

    Attributes:
        at: seconds since 1970, ascending.
        values: by column, as many as ``at``; None where nothing was measured.
    """

    step_seconds: int
    at: list[int]
    values: dict[str, list[float | None]]


class Series:
    """The measurements of the last hours; older ones are stored."""

    def __init__(self) -> None:
        self._chunks: dict[ChunkKey, array[float]] = {}
        self._changed: set[ChunkKey] = set()
        self._names: dict[str, set[str]] = {kind: set() for kind in COLUMNS}

    def add(
        self,
        kind: str,
        name: str,
        at: float,
        values: Sequence[float | None],
        tiers: Sequence[Tier] = TIERS,
    ) -> None:
        """Takes one measurement.

        Args:
            kind: ``pool``, ``host`` or ``queue``.
            name: of the thing.
            at: seconds since 1970.
            values: in the order of the kind's columns; None for what is unknown.
            tiers: in which it is kept.
        """
        names = self._names[kind]
        if name not in names and len(names) >= _MOST_NAMES:
            return
        names.add(name)
        second, width = int(at), len(COLUMNS[kind])
        for tier in tiers:
            key = ChunkKey(kind, name, tier.step_seconds, second // HOUR_SECONDS)
            chunk = self._chunks.get(key)
            if chunk is None:
                cells = HOUR_SECONDS // tier.step_seconds * width
                chunk = self._chunks[key] = array("d", [_UNKNOWN]) * cells
            start = second % HOUR_SECONDS // tier.step_seconds * width
            for cell, value in enumerate(values, start):
                if value is not None and not chunk[cell] >= value:
                    chunk[cell] = value
            self._changed.add(key)

    def points(
        self,
        kind: str,
        name: str,
        since: float,
        until: float,
        stored: Iterable[tuple[ChunkKey, bytes]] = (),
        now: float | None = None,
    ) -> Points:
        """The finest points that reach back so far, or else the coarsest.

        Points without any value are left out.

        Args:
            kind: ``pool``, ``host`` or ``queue``.
            name: of the thing.
            since: seconds since 1970.
            until: likewise.
            stored: chunks of :func:`wanted` that are not in memory any more.
            now: seconds since 1970, where ``until`` lies before; finer points may be gone by now.
        """
        columns, wanted_chunks = COLUMNS[kind], wanted(kind, name, since, until, now)
        chunks = {key: chunk for key, body in stored if (chunk := _chunk(key, body)) is not None}
        at: list[int] = []
        rows: list[Sequence[float]] = []
        for key in wanted_chunks:
            chunk = self._chunks.get(key, chunks.get(key))
            for second, row in _rows(key, chunk, int(since), int(until)) if chunk else ():
                at.append(second)
                rows.append(row)
        shown = {
            column: [None if math.isnan(row[place]) else row[place] for row in rows]
            for place, column in enumerate(columns)
        }
        step = _tier(since, until if now is None else now).step_seconds
        return Points(step_seconds=step, at=at, values=shown)

    # --- keeping ----------------------------------------------------------------------------------
    def restore(self, chunks: Iterable[tuple[ChunkKey, bytes]]) -> None:
        """Takes chunks that were stored; those of another form are left out."""
        for key, body in chunks:
            if (chunk := _chunk(key, body)) is not None:
                self._chunks[key] = chunk
                self._names[key.kind].add(key.name)

    def take_changed(self) -> list[tuple[ChunkKey, bytes]]:
        """What is to be stored since the last call."""
        changed, self._changed = self._changed, set()
        return [(key, self._chunks[key].tobytes()) for key in changed if key in self._chunks]

    def let_go(self, now: float) -> None:
        """Leaves the memory what is stored and will not change any more."""
        oldest = first_in_memory(now)
        for key in [key for key in self._chunks if key.hour < oldest and key not in self._changed]:
            del self._chunks[key]
        self._names = {kind: set() for kind in COLUMNS}
        for key in self._chunks:
            self._names[key.kind].add(key.name)


def first_in_memory(now: float) -> int:
    """The first hour whose chunks are in memory: measurements come at most an hour late."""
    return int(now) // HOUR_SECONDS - 1


def oldest_kept(now: float) -> list[tuple[int, int]]:
    """By resolution in seconds, the first hour that is still kept."""
    return [(step, int(now - kept) // HOUR_SECONDS) for step, kept in TIERS]


def wanted(
    kind: str, name: str, since: float, until: float, now: float | None = None
) -> list[ChunkKey]:
    """The chunks that the points of a stretch are in, oldest first; it may end before ``now``."""
    step = _tier(since, until if now is None else now).step_seconds
    hours = range(int(since) // HOUR_SECONDS, int(until) // HOUR_SECONDS + 1)
    return [ChunkKey(kind, name, step, hour) for hour in hours]


def _tier(since: float, until: float) -> Tier:
    return next((tier for tier in TIERS if tier.kept_seconds >= until - since), TIERS[-1])


def _chunk(key: ChunkKey, body: bytes) -> array[float] | None:
    """A chunk that was stored; None for one of another form."""
    width, chunk = len(COLUMNS.get(key.kind, ())), array("d")
    if not width or len(body) != HOUR_SECONDS // key.step_seconds * width * chunk.itemsize:
        return None
    chunk.frombytes(body)
    return chunk


def _rows(
    key: ChunkKey, chunk: array[float], since: int, until: int
) -> Iterator[tuple[int, Sequence[float]]]:
    step, width, start = key.step_seconds, len(COLUMNS[key.kind]), key.hour * HOUR_SECONDS
    first = max(0, -(-(since - start) // step))
    end = min(HOUR_SECONDS - 1, until - start) // step
    for slot in range(first, end + 1):
        row = chunk[slot * width : (slot + 1) * width]
        if not all(map(math.isnan, row)):
            yield start + slot * step, row
