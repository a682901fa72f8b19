"""A console over the bus in memory, served over a socket as in production."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from tests.component.console.conftest import Site

from penstock.console.app import application
from penstock.console.web import server
from penstock.console.web.credentials import Authenticator
from penstock.console.web.gate import Gate
from penstock.runtime.service import Service


@asynccontextmanager
async def served(site: Site, authenticator: Authenticator) -> AsyncIterator[str]:
    """The console's address, such as ``http://127.0.0.1:41234``."""
    settings = msgspec.structs.replace(site.settings.console, port=0)
    bound = server.listening_socket(settings)
    bound.listen()  # connections wait until the server is there
    service = Service("console", site.settings, site.bus)
    app = Gate(application(site.console, authenticator), settings)
    serving = asyncio.create_task(server.serve(service, app, settings, bound))
    try:
        yield server.address(settings, bound)
    finally:
        service.stopping.set()
        await serving
        await service.end_tasks()
