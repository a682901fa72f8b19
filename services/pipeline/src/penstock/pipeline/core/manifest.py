"""The manifest of a lake: entries of batches, which compaction folds into one file.

An entry is written once its files are in place and never changed. A whole replaces all entries that
it names, so that whatever is left behind by a crash in between counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter

import msgspec


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A Parquet file, by its path below the stream's folder."""

    path: str
    bytes: int

    @property
    def partition(self) -> str:
        """``set=…/day=…/event=…``."""
        return self.path.rsplit("/", 2)[0]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One batch.

    Attributes:
        batch: query and number.
        first: lowest stream sequence of its rows, 0 where it has none.
        last: the highest one.
        rows: all of them, with those kept aside: malformed, unknown (of a type not known then).
    """

    batch: str
    first: int = 0
    last: int = 0
    rows: int = 0
    malformed: int = 0
    unknown: int = 0
    files: tuple[File, ...] = ()


class Whole(Entry, frozen=True, kw_only=True):
    """All of a lake's batches up to some moment. ``merged``: the highest number of each query."""

    number: int = 0
    merged: dict[str, int] = {}

    def holds(self, batch: str) -> bool:
        query, number = batch_parts(batch)
        return number <= self.merged.get(query, -1)


def batch_name(query: str, number: int) -> str:
    return f"{query[:8]}-{number:09d}"


def batch_parts(batch: str) -> tuple[str, int]:
    query, _, number = batch.rpartition("-")
    return query, int(number)


def fold(whole: Whole, entries: Iterable[Entry]) -> Whole:
    """The whole with the entries that it does not hold yet."""
    fresh = sorted((e for e in entries if not whole.holds(e.batch)), key=attrgetter("batch"))
    parts = [whole, *fresh]
    merged = dict(whole.merged)
    for entry in fresh:
        query, number = batch_parts(entry.batch)
        merged[query] = max(number, merged.get(query, -1))
    return Whole(
        batch=whole.batch,
        number=whole.number,
        merged=merged,
        first=min((part.first for part in parts if part.first), default=0),
        last=max(part.last for part in parts),
        rows=sum(part.rows for part in parts),
        malformed=sum(part.malformed for part in parts),
        unknown=sum(part.unknown for part in parts),
        files=tuple(file for part in parts for file in part.files),
    )


def small_files(
    files: Iterable[File], target_bytes: int, at_least: int
) -> list[tuple[str, Sequence[File]]]:
    """Partitions with enough files under the target size to be worth merging, and these files."""
    small = sorted((f for f in files if f.bytes < target_bytes), key=attrgetter("path"))
    groups = [(key, list(group)) for key, group in groupby(small, key=attrgetter("partition"))]
    return [(key, group) for key, group in groups if len(group) >= max(at_least, 2)]
