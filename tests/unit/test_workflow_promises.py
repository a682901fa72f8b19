"""docs/workflows.md names a test that exists for each of its promises, and for each failure."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.named_tests import missing_tests, named_tests, rows

PAGE = (Path(__file__).parents[2] / "docs" / "workflows.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("heading", "column"),
    [("## What is promised, and what is not", 1), ("## When something fails", 2)],
)
def test_each_row_names_the_tests_that_show_it(heading: str, column: int) -> None:
    table = rows(PAGE, heading)
    assert len(table) >= 10
    for cells in table:
        assert len(cells) == 3, cells
        assert "`" in cells[column], cells
    shown_by = "\n".join(cells[column] for cells in table)
    assert len(named_tests(shown_by)) >= len(table)
    assert list(missing_tests(shown_by)) == []


@pytest.mark.parametrize(
    ("cell", "missing"),
    [
        ("`test_inbox.py`", []),
        ("`test_no_such_file.py`", ["test_no_such_file.py"]),
        (
            "`test_inbox.py::test_none`, `::test_nil`",
            ["test_inbox.py::test_none", "test_inbox.py::test_nil"],
        ),
    ],
)
def test_a_row_whose_test_does_not_exist_is_refused(cell: str, missing: list[str]) -> None:
    assert list(missing_tests(cell)) == missing
