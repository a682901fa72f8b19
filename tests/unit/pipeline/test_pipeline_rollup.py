"""The rollups' tables are what the docs say."""

from __future__ import annotations

from pathlib import Path

from penstock.pipeline.core.rolled import State
from penstock.pipeline.core.rollup import JOBS, POOLS, TABLES

PAGE = Path(__file__).parents[3] / "docs" / "pipeline.md"


def test_each_column_stands_in_the_docs_with_its_type_and_meaning() -> None:
    page = PAGE.read_text("utf-8")
    for table in TABLES.values():
        for name, column in table.columns.items():
            assert f"| `{name}` | {column.kind} | {column.about} |" in page


def test_a_row_is_found_by_its_keys() -> None:
    assert JOBS.keys == ["start", "pool", "queue", "function"]
    assert POOLS.keys == ["start", "pool"]


def test_what_counts_of_a_table_is_one_folder_a_day() -> None:
    state = State(
        versions={
            "jobs/grain=hour/day=2026-01-31": "000002-1",
            "jobs/grain=hour/day=2026-02-01": "000003-1",
            "jobs/grain=day/day=2026-02-01": "000003-1",
            "pools/grain=hour/day=2026-02-01": "000003-1",
        }
    )
    assert state.folders("jobs", "hour", ["2026-01-31", "2026-02-02"]) == [
        "jobs/grain=hour/day=2026-01-31/version=000002-1"
    ]
    assert len(state.folders("jobs", "hour")) == 2
