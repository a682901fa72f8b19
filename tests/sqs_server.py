"""Amazon SQS as moto has it, in a process of a test's own on a free port of loopback."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest
from tests.answering import until_answered

KEY_ID, SECRET_KEY = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG"
REGION = "eu-central-1"
_PROGRAM = """
import sys, threading
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", int(sys.argv[1]), verbose=False)
server.start()
threading.Event().wait()
"""


class SqsServer:
    """Holds nothing on disk.

    Attributes:
        url: endpoint of the service.
    """

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(self.port)], stderr=subprocess.DEVNULL
        )
        until_answered(self.port, b"GET / HTTP/1.0\r\n\r\n", b"HTTP")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """One operation of boto3's client, whose connection is closed after it."""
        import boto3

        client = boto3.client(
            "sqs", endpoint_url=self.url, region_name=REGION,
            aws_access_key_id=KEY_ID, aws_secret_access_key=SECRET_KEY,
        )  # fmt: skip
        try:
            answer: dict[str, Any] = getattr(client, operation)(**arguments)
        finally:
            client.close()
        return answer

    def connections(self) -> int:
        """Connections of this process to the server."""
        return sum(
            bool(one.raddr) and one.raddr.port == self.port and one.status == "ESTABLISHED"
            for one in psutil.Process().net_connections("tcp")
        )


@contextmanager
def sqs_server() -> Iterator[SqsServer]:
    """Skips where moto's server is not installed."""
    pytest.importorskip("boto3")
    pytest.importorskip("moto.server")
    server = SqsServer()
    try:
        server.start()
        yield server
    finally:
        server.kill()
