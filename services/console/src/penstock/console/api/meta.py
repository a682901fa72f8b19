"""The console itself: version and health."""

from __future__ import annotations

import os
import socket
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import Any

import msgspec
from litestar import Request

from penstock.console.api.description import describe
from penstock.console.api.endpoint import Listing, Routes, read, whole
from penstock.console.parts import Console
from penstock.console.read_models.projection import BEHIND_SECONDS, Standing
from penstock.console.web import problems


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """Versions of what answers."""

    version: str
    api: str = "v1"


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """The console that answers.

    Attributes:
        prefix: of the installation that it shows.
        host: as ``host.name`` says.
    """

    prefix: str
    host: str
    pid: int


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether what is shown is current.

    Attributes:
        state: ``current``, ``behind`` or ``disconnected``.
        open_pages: pages that are sent changes.
        database_bytes: size of the files with the rows.
        process: which console this is.
        alerts: why it cannot send to all channels of alerts; empty where it can.
    """

    state: str
    standing: Standing
    open_pages: int
    database_bytes: int
    process: Process
    alerts: str = ""


def own_version() -> str:
    """Of this distribution."""
    try:
        return installed_version("penstock-console")
    except PackageNotFoundError:
        return "unknown"


def state_of(standing: Standing) -> str:
    """``current``, ``behind`` or ``disconnected``."""
    if not standing.is_connected:
        return "disconnected"
    return "behind" if standing.behind_seconds > BEHIND_SECONDS else "current"


class ProblemKind(msgspec.Struct, frozen=True, kw_only=True):
    """A status, and the title of problems that have it."""

    status: int
    title: str


def routes(console: Console) -> Routes:
    """The endpoints of this group."""
    document: dict[str, Any] = {}
    settings = console.settings
    process = Process(prefix=settings.prefix, host=socket.gethostname(), pid=os.getpid())

    @read("/version")
    async def version() -> Version:
        """The console's version."""
        return Version(version=own_version())

    @read("/health")
    async def health() -> Health:
        """Whether what is shown is current."""
        standing = console.standing
        return Health(
            state=state_of(standing),
            standing=standing,
            open_pages=console.hub.clients,
            database_bytes=console.store.size_bytes,
            process=process,
            alerts=console.alerts.key_problem,
        )

    @read("/problems")
    async def kinds_of_problems() -> Listing[ProblemKind]:
        """What the status of an answer that reports a problem means."""
        titles = sorted(problems.TITLES.items())
        return whole(console, [ProblemKind(status=code, title=title) for code, title in titles])

    @read("/openapi.json", include_in_schema=False)
    async def openapi(request: Request[Any, Any, Any]) -> dict[str, Any]:
        """OpenAPI 3.1 of all endpoints."""
        if not document:
            document.update(describe(request.app))
        return document

    return version, health, kinds_of_problems, openapi
