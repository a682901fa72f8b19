"""Rows are the same however the log is cut, and a job's row agrees with its own events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.console.logs import logs

from penstock.console.core.folding import Rows, fold, stretch
from penstock.console.core.job_rows import advance as advance_job
from penstock.console.core.log_entry import LogEntry
from penstock.console.core.tables import TABLES
from penstock.jobs import lifecycle

Folded = tuple[dict[str, Rows], Counter[tuple[str, str, str]]]


def folded(parts: Sequence[Sequence[LogEntry]]) -> Folded:
    """Rows and counts after the parts of a log, each folded onto the rows of the ones before."""
    rows: dict[str, Rows] = {}
    counts: Counter[tuple[str, str, str]] = Counter()
    for part in parts:
        changes = fold(TABLES, rows, stretch(TABLES, part))
        for table, changed in changes.rows.items():
            rows.setdefault(table, {}).update(changed)
        counts.update(changes.counts)
    return rows, +counts


def cut(log: list[LogEntry], places: set[int]) -> list[list[LogEntry]]:
    edges = [0, *sorted(place % len(log) for place in places), len(log)]
    return [log[a:b] for a, b in pairwise(edges) if a < b]


@given(logs(), st.sets(st.integers(0, 60)))
def test_folding_in_any_parts_is_folding_one_by_one(log: list[LogEntry], places: set[int]) -> None:
    one_by_one = folded([[entry] for entry in log])
    assert folded(cut(log, places)) == one_by_one
    assert folded([log]) == one_by_one


@given(logs())
def test_counts_are_those_of_the_rows(log: list[LogEntry]) -> None:
    rows, counts = folded([log])
    recounted = Counter(
        (table.name, *table.counted(row))
        for table in TABLES
        if table.counted
        for row in rows.get(table.name, {}).values()
        if row is not None
    )
    assert counts == recounted


@given(logs(nouns=("job",)))
def test_a_row_agrees_with_the_fold_that_the_command_shows(log: list[LogEntry]) -> None:
    own = [entry for entry in log if entry.key == "a"]
    record = lifecycle.fold([(entry.sequence, entry.event) for entry in own])
    row = None
    for entry in own:
        row = advance_job(row, entry)
    if record is None:
        assert row is None
        return
    assert row is not None
    assert (row.state, row.sequence, row.attempt) == (record.state, record.sequence, record.attempt)
    assert (row.life, row.host, row.done) == (record.life, record.host, record.done)
    assert row.available_us == round(record.available_at.timestamp() * 1e6)
    assert row.error_kind == (record.error.kind if record.error else "")
    assert row.deferred == record.put_off
    assert row.call == (record.call if record.payload else "")
