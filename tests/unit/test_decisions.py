"""The pages of decisions: each number once, none missing."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"


def test_their_numbers_have_no_gap() -> None:
    numbers = sorted(int(page.name[:4]) for page in FOLDER.glob("*.md"))
    assert numbers == list(range(1, len(numbers) + 1))
