"""The tutorials, each done as written in a fresh folder: files, commands, what they print.

A block of Python or TOML whose first line is a comment with a file name is that file; each line of
a `sh` block is a command; each line of a `text` block after it stands in what it printed.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.integration.test_up import running_up

DOCS = Path(__file__).parents[2] / "docs"
TUTORIALS = [DOCS / "first-project.md", *sorted((DOCS / "tutorials").glob("*.md"))]
START = "penstock up --no-live &"
_FILE = re.compile(r"# ([\w./]+\.(?:py|toml))\n")


class Block(NamedTuple):
    language: str
    text: str


def blocks(page: str) -> Iterator[Block]:
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", page, re.S | re.M):
        yield Block(language, text)


class Reader:
    """Does what a page says, in a folder of its own."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._printed = ""

    def follow(self, block: Block) -> None:
        file = _FILE.match(block.text)
        if file:
            (self._folder / file[1]).write_text(block.text)
        elif block.language == "sh":
            self._printed = "".join(map(self._run, block.text.splitlines()))
        elif block.language == "text" and self._printed:
            for line in block.text.splitlines():
                assert line in self._printed, self._printed

    def _run(self, command: str) -> str:
        if command == START:
            self._stack.enter_context(running_up(self._folder, 20.0)).until_ready()
            return ""
        done = subprocess.run(
            [str(Path(sys.executable).parent / word) for word in shlex.split(command)[:1]]
            + shlex.split(command)[1:],
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": ""},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        # services that have just started may still be missing for health: 3 and 4 are no failure
        expected = {0, 3, 4} if command == "penstock health" else {0}
        assert done.returncode in expected, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr


@pytest.mark.spark
@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_works_as_written(tutorial: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        reader = Reader(tmp_path, stack)
        for block in blocks(tutorial.read_text()):
            reader.follow(block)
