"""docs/security.md names tests that exist, for each row of its table of attacks."""

from __future__ import annotations

from pathlib import Path

from tests.named_tests import missing_tests, named_tests, rows

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")


def test_each_test_that_the_page_names_exists() -> None:
    assert len(named_tests(PAGE)) > 20
    assert list(missing_tests(PAGE)) == []


def test_file_names_are_unique_so_that_a_name_is_enough() -> None:
    paths = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(set(paths)) == sorted(paths)


def test_each_attack_names_the_test_that_shows_what_happens() -> None:
    attacks = rows(PAGE, "## Attacks and what stops them")
    assert len(attacks) >= 15
    for cells in attacks:
        assert len(cells) == 4, cells
        assert named_tests(cells[3]), cells
