"""Does what a page says in a fresh folder: files, commands, what they print.

A block whose first line is a comment with a file name is that file; each line of a `sh` block is a
command, in the background where it ends in `&`; each line of a `text` block after it stands in what
it printed, or in what its last command prints a little later if that only shows something. Several
blanks count as one. Blocks of other languages are read only.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.integration.test_up import running_up

START = "penstock up --no-live &"
SHOWING = ("penstock workflow why", "penstock workflow show", "penstock workflow ls")
EXIT_CODES = {
    "penstock health": {0, 3, 4},  # services that have just started may still be missing
    "penstock workflow replay": {0, 1},  # 1: what was to be shown
}
"""Of commands that do not always end with 0."""
_FILE = re.compile(r"(?:#|--) ([\w./@]+\.\w+)\n")


class Block(NamedTuple):
    """What stands between two fences.

    Attributes:
        language: as the opening fence names it.
        text: the lines between them.
    """

    language: str
    text: str


def blocks(page: str) -> Iterator[Block]:
    """The blocks of a page in Markdown, in order."""
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", page, re.S | re.M):
        yield Block(language, text)


class Reader:
    """Follows pages in one folder.

    Args:
        folder: an empty one.
        stack: ends what runs in the background.
        environment: of the commands, beside this process's.
    """

    def __init__(
        self, folder: Path, stack: ExitStack, environment: Mapping[str, str] | None = None
    ) -> None:
        self.folder, self._stack = folder, stack
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, **(environment or {}), "PYTHONPATH": ""}
        self._printed, self._last = "", ""

    def follow(self, block: Block) -> None:
        """Does what a block says. Raises AssertionError when the outcome is another."""
        file = _FILE.match(block.text)
        if file:
            path = self.folder / file[1]
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.text)
        elif block.language == "sh":
            *_, self._last = commands = block.text.splitlines()
            self._printed = _squeezed("".join(map(self._run, commands)))
        elif block.language == "text" and self._printed:
            deadline = time.monotonic() + (20.0 if self._last.startswith(SHOWING) else 0.0)
            expected = block.text.splitlines()
            while missing := [line for line in expected if _squeezed(line) not in self._printed]:
                assert time.monotonic() < deadline, f"{missing} not in\n{self._printed}"
                self._printed += _squeezed(self._run(self._last))

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """Starts a command that is ended with the stack."""
        log = self._stack.enter_context((self.folder / "background.log").open("ab"))
        process = subprocess.Popen(
            _words(command), cwd=self.folder, env=self._environment, stdout=log, stderr=log
        )
        self._stack.enter_context(_ended(process))
        return process

    def _run(self, command: str) -> str:
        if command == START:
            self._stack.enter_context(running_up(self.folder, 20.0)).until_ready()
            return ""
        if command.endswith("&"):
            self.start(command.removesuffix("&"))
            return ""
        if command.startswith("curl"):
            _await_listener(urlsplit(command.rsplit(maxsplit=1)[-1]).port or 80)
        done = subprocess.run(
            _words(command),
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        expected = EXIT_CODES.get(command, {0})
        assert done.returncode in expected, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr


def _await_listener(port: int, seconds: float = 30.0) -> None:
    """Returns when a server that may still be starting takes connections."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, f"no server listens on port {port}"
            time.sleep(0.05)
        else:
            return


def _squeezed(text: str) -> str:
    """The text with one blank in place of several: columns are as wide as their rows need."""
    return re.sub(r" +", " ", text)


def _words(command: str) -> list[str]:
    """The words of a command, its program preferably that of this environment."""
    program, *arguments = shlex.split(command)
    here = Path(sys.executable).parent / program
    return [str(here) if here.exists() else shutil.which(program) or program, *arguments]


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
