"""docs/workflows.md names a test that exists for each of its promises."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.named_tests import missing_tests, named_tests, rows

PAGE = (Path(__file__).parents[2] / "docs" / "workflows.md").read_text("utf-8")


def test_each_promise_names_the_tests_that_show_it() -> None:
    promises = rows(PAGE, "## What is promised, and what is not")
    assert len(promises) >= 10
    for cells in promises:
        assert len(cells) == 3, cells
        assert named_tests(cells[1]), cells
        assert list(missing_tests(cells[1])) == []


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
