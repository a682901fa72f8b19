"""A beanstalkd server of a test's own, on a free port of loopback, which can be killed."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.answering import until_answered


class BeanstalkdServer:
    """Holds nothing on disk.

    Attributes:
        url: its address.
    """

    def __init__(self, folder: Path, arguments: tuple[str, ...]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"beanstalkd://127.0.0.1:{self.port}"
        self._folder, self._arguments = folder, arguments
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._folder / "beanstalkd.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["beanstalkd", "-l", "127.0.0.1", "-p", str(self.port), *self._arguments],
                stdout=log, stderr=log,
            )  # fmt: skip
        until_answered(self.port, b"list-tube-used\r\n", b"USING", self._folder / "beanstalkd.log")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def beanstalkd_server(folder: Path, *arguments: str) -> Iterator[BeanstalkdServer]:
    """Skips where no server is installed."""
    if not shutil.which("beanstalkd"):
        pytest.skip("needs beanstalkd on PATH")
    server = BeanstalkdServer(folder, arguments)
    try:
        server.start()
        yield server
    finally:
        server.kill()
