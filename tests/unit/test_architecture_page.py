"""The page that shows where things are: each path is there, and defines what the page names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text("utf-8")
ROWS = re.findall(r"^\| (.+?) \| (.+?) \| (.*?) ?\|$", PAGE.partition("\n## ")[0], re.MULTILINE)[2:]


@pytest.mark.parametrize(("question", "files", "name"), ROWS, ids=[row[0] for row in ROWS])
def test_each_answer_can_be_opened(question: str, files: str, name: str) -> None:
    paths = [ROOT / path for path in re.findall(r"`(\S+/\S+)`", files)]
    assert paths
    assert [path for path in paths if not path.exists()] == []
    owner, _, method = name.strip("` ").partition(".")
    for defined in filter(None, (owner, method)):
        pattern = rf"^ *(?:async def|def|class) {defined}\b|^{defined}\b"
        assert re.search(pattern, paths[-1].read_text("utf-8"), re.MULTILINE), question


def test_the_table_is_there() -> None:
    assert len(ROWS) > 10
