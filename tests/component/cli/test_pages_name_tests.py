"""Pages that name a test for each row: the tests exist, and no row is without an answer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = ["new-user-findings.md", "reference-items.md"]
NAMING = [*PAGES, "workflows.md"]
NAMED = re.compile(r"((?:tests/[\w/]*/)?test_\w+\.py)?(?:::(test_\w+))?")


def missing(text: str) -> list[str]:
    """The tests that a page names and that do not exist; ``::test`` alone is of the last file."""
    absent: list[str] = []
    files: list[Path] = []
    for named in NAMED.finditer(text):
        file, function = named.groups()
        if file:
            files = [ROOT / file] if "/" in file else list((ROOT / "tests").rglob(file))
            files = [path for path in files if path.is_file()]
        is_there = any(not function or f"def {function}(" in path.read_text() for path in files)
        if (file or function) and not is_there:
            absent.append(named[0])
    return absent


@pytest.mark.parametrize("page", NAMING)
def test_each_test_that_a_page_names_exists(page: str) -> None:
    assert missing((ROOT / "docs" / page).read_text("utf-8")) == []


def test_what_does_not_exist_is_found() -> None:
    assert missing(
        "`test_nowhere.py`, `test_pages_name_tests.py::test_none`, `::test_no_more`"
    ) == [
        "test_nowhere.py",
        "test_pages_name_tests.py::test_none",
        "::test_no_more",
    ]


@pytest.mark.parametrize("page", PAGES)
def test_no_row_is_open(page: str) -> None:
    lines = (ROOT / "docs" / page).read_text("utf-8").splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert [row for row in rows if re.search(r"\|\s*(open)?\s*\|$", row)] == []
