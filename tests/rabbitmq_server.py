"""A RabbitMQ server of a test's own, on free ports of loopback, which can be killed and started.

It has a port mapper (epmd), a cookie and folders of its own, so that it meets no other node.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest

_START_SECONDS = 180.0
"""A virtual machine and forty modules: ten seconds alone, thirty beside other tests."""
_SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""Debian's command on PATH changes the user and the folder before it runs this."""
_LOGIN = b64encode(b"guest:guest").decode()


class RabbitServer:
    """With the management plugin, whose figures are collected every ``statistics_seconds``.

    Attributes:
        url: of AMQP.
        management_url: of the management API.
        statistics_seconds: between two collections; queues with a quorum have a tick of that, too.
    """

    statistics_seconds = 0.2

    def __init__(self, folder: Path) -> None:
        self.port, self._management_port, self._epmd_port, self._node_port = _free_ports(4)
        self.url = f"amqp://127.0.0.1:{self.port}/"
        self.management_url = f"http://127.0.0.1:{self._management_port}"
        self._folder = folder
        self._epmd: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._configure()

    def start(self) -> None:
        """Returns when both ports answer; what was durable is there again."""
        mapper = {"ERL_EPMD_PORT": str(self._epmd_port), "ERL_EPMD_ADDRESS": "127.0.0.1"}
        env = {"PATH": os.environ["PATH"], "HOME": str(self._folder), "LANG": "C.UTF-8", **mapper}
        with (self._folder / "rabbitmq.log").open("ab") as log:
            if self._epmd is None:
                # In the foreground: one that the server started itself would outlive it.
                self._epmd = subprocess.Popen(["epmd"], env=env, stdout=log, stderr=log)
            self._server = subprocess.Popen(
                [str(_SCRIPT)], env=env | self._variables(), stdout=log, stderr=log,
                cwd=self._folder,
            )  # fmt: skip
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self._server.poll() is None:
            with suppress(OSError, HTTPException, ValueError, AssertionError):
                if self.api("GET", "/api/overview") and self._listens():
                    return
            time.sleep(0.1)
        raise TimeoutError((self._folder / "rabbitmq.log").read_text())

    def kill(self) -> None:
        """Ends the server at once, and all processes that it started."""
        if self._server is None:
            return
        processes = [psutil.Process(self._server.pid)]
        processes += processes[0].children(recursive=True)
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._server.wait()
        psutil.wait_procs(processes, timeout=30)
        self._server = None

    def close(self) -> None:
        self.kill()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """What the management API answers; None where it answers without a body."""
        connection = HTTPConnection("127.0.0.1", self._management_port, timeout=30)
        try:
            headers = {"Authorization": f"Basic {_LOGIN}", "Content-Type": "application/json"}
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, headers)
            response = connection.getresponse()
            answer = response.read()
            assert response.status < 300, (response.status, answer)
            return json.loads(answer) if answer else None
        finally:
            connection.close()

    def queue(self, name: str, vhost: str = "/") -> dict[str, Any]:
        """All that the management API shows of a queue."""
        answer = self.api("GET", f"/api/queues/{quote(vhost, safe='')}/{quote(name, safe='')}")
        assert isinstance(answer, dict)
        return answer

    def connections(self, port: int) -> int:
        """Connections to one of its ports that are open at the server's side."""
        assert self._server is not None
        sockets: list[Any] = []
        for process in psutil.Process(self._server.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # one that the server ran for a moment
                sockets += process.net_connections("tcp")
        return sum(
            connection.status == psutil.CONN_ESTABLISHED and connection.laddr.port == port
            for connection in sockets
        )

    @property
    def management_port(self) -> int:
        return self._management_port

    def _configure(self) -> None:
        milliseconds = round(self.statistics_seconds * 1000)
        (self._folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\n"
            "management.tcp.ip = 127.0.0.1\n"
            f"management.tcp.port = {self._management_port}\n"
            f"collect_statistics_interval = {milliseconds}\n"
            "disk_free_limit.absolute = 1MB\n"
        )
        (self._folder / "advanced.config").write_text(
            f"[{{rabbit, [{{quorum_tick_interval, {milliseconds}}}]}},\n"
            " {rabbitmq_management, [{sample_retention_policies,\n"
            "  [{global, [{5, 1}]}, {basic, [{5, 1}]}, {detailed, [{5, 1}]}]}]}].\n"
        )
        (self._folder / "plugins").write_text("[rabbitmq_management].\n")
        (self._folder / "environment").touch()

    def _variables(self) -> dict[str, str]:
        folder = self._folder
        return {
            "RABBITMQ_NODENAME": f"penstock{self.port}@localhost",
            "RABBITMQ_CONF_ENV_FILE": str(folder / "environment"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "generated"),
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "-kernel inet_dist_use_interface {127,0,0,1} +S 1"
            ),
        }

    def _listens(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), 1):
            return True


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [free.getsockname()[1] for free in sockets]
    for free in sockets:
        free.close()
    return ports


@contextmanager
def rabbitmq_server(folder: Path) -> Iterator[RabbitServer]:
    """Skips where no server is installed."""
    if not (_SCRIPT.exists() and shutil.which("epmd")):
        pytest.skip("needs rabbitmq-server and epmd")
    server = RabbitServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.close()
