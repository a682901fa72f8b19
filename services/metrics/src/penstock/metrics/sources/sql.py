"""Kind ``sql``: figures from a query of PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from penstock.config.extras import needed
from penstock.metrics.core.sources.look import SourceFault, SourceLook
from penstock.metrics.sources.reported import look_of
from penstock.metrics.sources.source import Kind, SourceAway, SourceSettings

if TYPE_CHECKING:
    from psycopg import AsyncConnection

_TIMEOUT_SHARE = 0.9
"""The server ends a statement before the look is given up: nothing goes on there alone."""


class SqlOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A query that gives one row for the queue ``%(queue)s``; its columns are named as figures."""

    query: Annotated[str, Meta(min_length=1, max_length=10_000)]


class SqlSource:
    """One connection, on which only reading transactions are allowed."""

    def __init__(self, settings: SourceSettings) -> None:
        with needed("sql", f"sources.{settings.name}: kind 'sql'", "penstock-metrics"):
            import psycopg  # noqa: PLC0415 - an extra
            from psycopg.rows import dict_row  # noqa: PLC0415
        self._psycopg, self._rows = psycopg, dict_row
        self._settings = settings
        self._query = settings.options.query.encode()
        self._connecting: asyncio.Task[AsyncConnection[dict[str, Any]]] | None = None

    async def look(self, queues: Sequence[str]) -> Mapping[str, SourceLook | SourceFault]:
        try:
            # Cancelled midway a connect leaves its socket open: it goes on, `close` ends it.
            self._connecting = self._connecting or asyncio.ensure_future(self._connect())
            connection = await asyncio.shield(self._connecting)
            return {queue: await self._look(connection, queue) for queue in queues}
        except (self._psycopg.Error, OSError) as error:
            raise SourceAway(_first_line(error, self._settings.secret)) from error

    async def close(self) -> None:
        if self._connecting is not None:
            connecting, self._connecting = self._connecting, None
            with suppress(self._psycopg.Error, OSError):
                connection = await connecting
                await connection.close()

    async def _look(
        self, connection: AsyncConnection[dict[str, Any]], queue: str
    ) -> SourceLook | SourceFault:
        async with connection.cursor() as cursor:
            await cursor.execute(self._query, {"queue": queue})
            if cursor.description is None:
                return SourceFault("the query gives no rows")
            rows = await cursor.fetchmany(2)
        if len(rows) != 1:
            return SourceFault(f"the query gave {len(rows) or 'no'} rows, expected one")
        return look_of(rows[0])

    async def _connect(self) -> AsyncConnection[dict[str, Any]]:
        seconds = self._settings.timeout_seconds
        limits = {
            "default_transaction_read_only": "on",
            "statement_timeout": str(max(int(seconds * _TIMEOUT_SHARE * 1000), 1)),
            "idle_in_transaction_session_timeout": "10000",
        }
        return await self._psycopg.AsyncConnection.connect(
            self._settings.url,
            password=self._settings.secret or None,
            options=" ".join(f"-c {name}={value}" for name, value in limits.items()),
            application_name="penstock-metrics",
            connect_timeout=max(int(seconds), 2),
            autocommit=True,
            row_factory=self._rows,
        )


def _first_line(error: Exception, secret: str) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].replace(secret, "***") if secret else lines[0]


KIND = Kind(open=SqlSource, schemes=("postgresql", "postgres"), options=SqlOptions)
