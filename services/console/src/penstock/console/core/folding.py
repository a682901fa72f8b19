"""A stretch of the event log, folded into changes of rows. Pure.

``fold`` of a log in one piece and of the same log cut anywhere give the same rows and counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from penstock.console.core.log_entry import LogEntry
from penstock.console.core.tables import Table

Rows = dict[str, msgspec.Struct | None]
"""By key; None where there is no row."""


@dataclass(frozen=True)
class Changes:
    """What a stretch of the log leads to.

    Attributes:
        rows: by table, each touched row as it is now; None for one to be removed.
        counts: by (table, group, state), by how many the number of rows changed.
        sequence: of the last entry.
    """

    rows: Mapping[str, Rows]
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    sequence: int = 0


@dataclass(frozen=True)
class Stretch:
    """A stretch of the log, by the rows that it may change.

    Attributes:
        entries: by table, each entry of its concern, with the key of its row.
        sequence: of the last entry.
    """

    entries: Mapping[str, Sequence[tuple[str, LogEntry]]]
    sequence: int

    def touched(self, table: str) -> set[str]:
        """The keys of the rows of a table that it may change."""
        return {key for key, _ in self.entries.get(table, ())}


def stretch(tables: Iterable[Table[msgspec.Struct]], log: Sequence[LogEntry]) -> Stretch:
    """The log by its tables and their rows.

    Args:
        tables: those to fold.
        log: oldest first, not empty.
    """
    tables_of: dict[str, list[Table[msgspec.Struct]]] = {}
    for table in tables:
        tables_of.setdefault(table.noun, []).append(table)
    entries: dict[str, list[tuple[str, LogEntry]]] = {table.name: [] for table in tables}
    for entry in log:
        for table in tables_of.get(entry.noun, ()):
            key = table.key_of(entry)
            if key is not None:
                entries[table.name].append((key, entry))
    return Stretch(entries, log[-1].sequence)


def fold(
    tables: Iterable[Table[msgspec.Struct]], before: Mapping[str, Rows], new: Stretch
) -> Changes:
    """The rows after a stretch of the log.

    Args:
        tables: those to fold.
        before: by table, the rows that exist among the touched ones.
        new: the stretch.
    """
    rows: dict[str, Rows] = {}
    counts: Counter[tuple[str, str, str]] = Counter()
    for table in tables:
        former = before.get(table.name, {})
        now: Rows = {}
        for key, entry in new.entries.get(table.name, ()):
            row = now[key] if key in now else former.get(key)
            now[key] = table.advance(row, entry)
        changed = {key: row for key, row in now.items() if row != former.get(key)}
        if changed:
            rows[table.name] = changed
        if table.counted is not None:
            for key, row in changed.items():
                if (old := former.get(key)) is not None:
                    counts[table.name, *table.counted(old)] -= 1
                if row is not None:
                    counts[table.name, *table.counted(row)] += 1
    moved = Counter({group: change for group, change in counts.items() if change})
    return Changes(rows, moved, new.sequence)
