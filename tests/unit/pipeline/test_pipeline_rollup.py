"""The rollups' tables are what the docs say."""

from __future__ import annotations

from pathlib import Path

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
