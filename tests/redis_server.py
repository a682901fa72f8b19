"""A Redis server of a test's own, on a free port of loopback, which can be stopped and started."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.answering import until_answered


class RedisServer:
    """Holds nothing on disk.

    Attributes:
        url: address of its database 0.
    """

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1",
                 "--save", "", "--appendonly", "no", "--dir", str(self._folder)],
                stdout=log, stderr=log,
            )  # fmt: skip
        until_answered(self.port, b"PING\r\n", b"+PONG", self._folder / "redis.log")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def redis_server(folder: Path) -> Iterator[RedisServer]:
    """Skips where no server is installed."""
    if not shutil.which("redis-server"):
        pytest.skip("needs redis-server on PATH")
    server = RedisServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()
