"""The tutorials and the first project, each done as written in a fresh folder."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.e2e.pages import Reader, blocks

DOCS = Path(__file__).parents[2] / "docs"
CELERY = DOCS / "tutorials" / "celery-in-ten-minutes.md"
"""Needs Celery in an environment of its own: `test_celery_example.py` follows it."""
TUTORIALS = [
    DOCS / "first-project.md",
    *sorted(path for path in (DOCS / "tutorials").glob("*.md") if path != CELERY),
]


@pytest.mark.spark
@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_works_as_written(tutorial: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        reader = Reader(tmp_path, stack)
        for block in blocks(tutorial.read_text()):
            reader.follow(block)
