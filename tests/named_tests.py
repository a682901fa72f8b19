"""Tests that pages name as what shows a promise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

FILES = {path.name: path for path in Path(__file__).parent.rglob("test_*.py")}
_NAMED = re.compile(r"`(?:(?:tests/\S*/)?(test_\w+\.py))?(?:::(\w+))?`")


def named_tests(text: str) -> list[tuple[str, str]]:
    """Each file and test that a text names in backticks; the test is empty where a file is meant.

    ``::name`` alone is a test of the file that was named last.
    """
    names: list[tuple[str, str]] = []
    for file, test in _NAMED.findall(text):
        if file or (test and names):
            names.append((file or names[-1][0], test))
    return names


def missing_tests(text: str) -> Iterator[str]:
    """Those of them that do not exist."""
    for file, test in named_tests(text):
        if file not in FILES:
            yield file
        elif test and not re.search(rf"def {test}\(", FILES[file].read_text("utf-8")):
            yield f"{file}::{test}"


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its title row."""
    section = page.partition(f"\n{heading}\n")[2]
    lines = re.search(r"(?:^\|.*\n)+", section, re.M)
    assert lines, f"no table below {heading!r}"
    table = [re.split(r"(?<!\\)\|", line.strip().strip("|")) for line in lines[0].splitlines()]
    return table[2:]
