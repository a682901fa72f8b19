"""The broker of a test in a container, by testcontainers: what a `Broker` does, done to that."""

from __future__ import annotations

import contextlib
import time
from http.client import HTTPConnection, HTTPException
from types import TracebackType
from typing import Any, Self

from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from penstock.runtime.paths import LOOPBACK, free_port

IMAGE = "nats:2.15-alpine"
_START_SECONDS = 30.0
_LOOK_SECONDS = 0.05
testcontainers_config.ryuk_disabled = True  # each is ended by its own context


class ContainerBroker:
    """One `nats-server` with JetStream; port and store stay the same through restarts."""

    def __init__(self) -> None:
        self._port, self._monitor = free_port(), free_port()
        self._container: Any = DockerContainer(IMAGE)
        self._container.with_command("-js -m 8222")
        # with_bind_ports would publish on all interfaces
        self._container.ports = {4222: (LOOPBACK, self._port), 8222: (LOOPBACK, self._monitor)}

    @property
    def url(self) -> str:
        return f"nats://{LOOPBACK}:{self._port}"

    @property
    def monitor_url(self) -> str:
        return f"http://{LOOPBACK}:{self._monitor}"

    def __enter__(self) -> Self:
        self._container.start()
        self._wait_until_healthy()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._container.stop(force=True, delete_volume=True)

    def start(self) -> None:
        self._engine.start()
        self._wait_until_healthy()

    def stop(self) -> None:
        self._engine.stop(timeout=10)

    def kill(self) -> None:
        self._engine.kill()

    def restart(self) -> None:
        self.kill()
        self.start()

    def freeze(self) -> None:
        self._engine.pause()

    def thaw(self) -> None:
        self._engine.unpause()

    @property
    def _engine(self) -> Any:
        return self._container.get_wrapped_container()

    def _wait_until_healthy(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not self._healthy():
            assert time.monotonic() < deadline, f"{IMAGE} does not become healthy"
            time.sleep(_LOOK_SECONDS)

    def _healthy(self) -> bool:
        with contextlib.closing(HTTPConnection(LOOPBACK, self._monitor, timeout=1.0)) as asked:
            try:
                asked.request("GET", "/healthz?js-enabled-only=true")
                return asked.getresponse().status == 200
            except (OSError, HTTPException):
                return False
