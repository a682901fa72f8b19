"""docs/security.md names tests that exist, for each row of its table of attacks."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")
FILES = {path.name: path for path in (ROOT / "tests").rglob("test_*.py")}
NAMED = re.findall(r"`(?:tests/\S*/)?(test_\w+\.py)(?:::(\w+))?`", PAGE)


def test_each_test_that_the_page_names_exists() -> None:
    assert len(NAMED) > 20
    for file, name in NAMED:
        assert file in FILES, file
        if name:
            assert re.search(rf"def {name}\(", FILES[file].read_text("utf-8")), f"{file}::{name}"


def test_file_names_are_unique_so_that_a_name_is_enough() -> None:
    paths = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(set(paths)) == sorted(paths)


def test_each_attack_names_the_test_that_shows_what_happens() -> None:
    section = PAGE.partition("## Attacks and what stops them")[2].partition("\n## ")[0]
    rows = [row for row in section.splitlines() if row.startswith("| ")][1:]
    rows = [row for row in rows if not row.startswith("| ---")]
    assert len(rows) >= 15
    for row in rows:
        cells = re.split(r"(?<!\\)\|", row.strip("|"))
        assert len(cells) == 4, row
        assert re.search(r"`test_\w+\.py", cells[3]), row
