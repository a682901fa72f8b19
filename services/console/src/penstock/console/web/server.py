"""The HTTP server, in the service's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator

import uvicorn

from penstock.config.console import Console as ConsoleSettings
from penstock.console.web.gate import Gate
from penstock.console.web.slow_clients import MOST_CONNECTIONS, ImpatientProtocol
from penstock.runtime.service import Service
from penstock.runtime.tasks import within

log = logging.getLogger("penstock.console")

_ENDING_SECONDS = 1
_DATE_SECONDS = 1.0
_BACKLOG = 2048
_SPARE_CONNECTIONS = 500
"""Beyond those among which one makes room for the next: then each is answered 503."""


class _Server(uvicorn.Server):
    """Uvicorn without signal handlers: the service has its own.

    Args:
        shown: the address, logged once connections are taken.
    """

    def __init__(self, config: uvicorn.Config, shown: str) -> None:
        super().__init__(config)
        self._shown = shown
        self._ending = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            log.info("console: %s", self._shown)

    async def main_loop(self) -> None:
        """Uvicorn's own looks ten times a second whether to end, to set the date once a second."""
        while not await self.on_tick(0):
            await within(_DATE_SECONDS, self._ending.wait())

    def end(self) -> None:
        """Takes no more connections; requests that run have a moment to end."""
        self.should_exit = True
        self._ending.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listening_socket(settings: ConsoleSettings) -> socket.socket:
    """A bound socket. Raises OSError: the port is taken, or the address is not of this machine."""
    family = socket.AF_INET6 if ":" in settings.address else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((settings.address, settings.port))
    except OSError:
        bound.close()
        raise
    return bound


def address(settings: ConsoleSettings, bound: socket.socket) -> str:
    """What a person types into a browser."""
    scheme = "https" if settings.tls_certificate_file else "http"
    host = f"[{settings.address}]" if ":" in settings.address else settings.address
    return f"{scheme}://{host}:{bound.getsockname()[1]}"


async def serve(
    service: Service, app: Gate, settings: ConsoleSettings, bound: socket.socket
) -> None:
    """Serves until the service stops; requests that run then have a second to end."""
    server = _Server(
        uvicorn.Config(
            app,
            http=ImpatientProtocol,
            ws="none",
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=_BACKLOG,
            limit_concurrency=MOST_CONNECTIONS + _SPARE_CONNECTIONS,
            timeout_graceful_shutdown=_ENDING_SECONDS,
            ssl_certfile=settings.tls_certificate_file or None,
            ssl_keyfile=settings.tls_key_file or None,
        ),
        address(settings, bound),
    )
    serving = service.spawn(server.serve([bound]), "http")
    await service.stopping.wait()
    server.end()
    await asyncio.wait([serving], timeout=2 * _ENDING_SECONDS)
