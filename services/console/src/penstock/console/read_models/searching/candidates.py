"""Which rows may hold some texts, from the index of texts and from what is not in it yet."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from penstock.console.read_models.columns import Columns
from penstock.console.read_models.searching.text_index import BUCKET_BITS, PART_BITS, part_name
from penstock.console.read_models.store import Snapshot

MARKS_SEARCHED = 5_000
"""So many buckets are looked at without an index; where more are marked, the index is behind."""
SHORTEST_TEXT = 3
"""Characters: the index knows trigrams."""
_MOST_TRIGRAMS = 24


def buckets(
    rows: Snapshot, columns: Columns[Any], texts: Sequence[str], newest_us: int
) -> Iterator[int] | None:
    """The buckets that may hold a row with all of these texts, newest first.

    Args:
        rows: the database; its own part is read first, so that no bucket is missed that is indexed
            meanwhile.
        columns: of the table.
        texts: some of at least three characters.
        newest_us: only buckets that begin at this time or before.

    Returns:
        None where the index is behind, or the texts are too short.
    """
    trigrams = _trigrams(texts)
    if not trigrams:
        return None
    newest = newest_us >> BUCKET_BITS
    marks = rows.all(f"SELECT bucket FROM {columns.marks} LIMIT ?", (MARKS_SEARCHED + 1,))
    if len(marks) > MARKS_SEARCHED:
        return None
    marked = sorted({bucket for (bucket,) in marks if bucket <= newest}, reverse=True)
    merged = heapq.merge(marked, _indexed(rows, trigrams, newest), reverse=True)
    return (bucket for bucket, _ in groupby(merged))


def _indexed(rows: Snapshot, trigrams: str, newest: int) -> Iterator[int]:
    query = "SELECT number FROM texts.parts WHERE number <= ? ORDER BY number DESC"
    for (part,) in rows.all(query, (newest >> PART_BITS,)):
        name = part_name(part)
        matching = f"SELECT rowid FROM texts.{name} WHERE {name} MATCH ? AND rowid <= ?"
        for (bucket,) in rows.lazily(f"{matching} ORDER BY rowid DESC", (trigrams, newest)):
            yield bucket


def _trigrams(texts: Sequence[str]) -> str:
    """The condition of FTS5 that some trigrams of the texts are there, spread over them."""
    every = list(
        dict.fromkeys(
            trigram
            for text in texts
            for start in range(len(text) - SHORTEST_TEXT + 1)
            if "\0" not in (trigram := text[start : start + SHORTEST_TEXT])
        )
    )
    step = max(1, -(-len(every) // _MOST_TRIGRAMS))
    quoted = (trigram.replace('"', '""') for trigram in every[::step])
    return " AND ".join(f'"{trigram}"' for trigram in quoted)
