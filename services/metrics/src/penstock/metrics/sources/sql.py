"""Kind ``sql``: figures from a query of PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from penstock.config.extras import needed
from penstock.config.source_patterns import WILDCARD
from penstock.metrics.core.sources.look import SourceFault, SourceLook
from penstock.metrics.sources.reported import look_of
from penstock.metrics.sources.source import MOST_NAMES, Kind, SourceAway, SourceSettings

if TYPE_CHECKING:
    from psycopg import AsyncConnection

SCHEMES = ("postgresql", "postgres")
_ALL_QUEUES = b"%(queues)s"
_QUEUE_NAMES = ("%(queue)", "%(queues)")
_NO_ROW = SourceFault("the query gave no row of it")
_TIMEOUT_SHARE = 0.9
"""The server ends a statement before the look is given up: nothing goes on there alone."""


class SqlOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A query that gives one row for the queue ``%(queue)s``; its columns are named as figures.

    One with ``%(queues)s`` in its place runs once for all of them, and gives a row for each with
    its name in the column ``queue``. ``names`` gives the names of queues that are
    ``like %(like)s``, in its first column; it may end with ``limit %(most)s``.
    """

    query: Annotated[str, Meta(min_length=1, max_length=10_000)]
    names: Annotated[str, Meta(max_length=10_000)] = ""


class SqlSource:
    """One connection, on which only reading transactions are allowed.

    Args:
        settings: of the source.
        query: as in `SqlOptions`; ``names`` likewise.
    """

    def __init__(self, settings: SourceSettings, query: str, names: str) -> None:
        with needed("sql", f"sources.{settings.name}: PostgreSQL", "penstock-metrics"):
            import psycopg  # noqa: PLC0415 - an extra
            from psycopg.rows import dict_row  # noqa: PLC0415

            from penstock.metrics.sources.sql_connection import BoundedConnection  # noqa: PLC0415
        self._psycopg, self._rows, self._connection = psycopg, dict_row, BoundedConnection
        self._settings = settings
        self._query, self._names = query.encode(), names.encode()
        self._connecting: asyncio.Task[AsyncConnection[dict[str, Any]]] | None = None

    async def look(self, queues: Sequence[str]) -> Mapping[str, SourceLook | SourceFault]:
        async with self.connection() as connection:
            if _ALL_QUEUES not in self._query:
                return {queue: await self._look(connection, queue) for queue in queues}
            values = self.parameters(queues)
            rows = await self.fetch(connection, self._query, values, len(queues))
        looks: dict[str, SourceLook | SourceFault] = dict.fromkeys(queues, _NO_ROW)
        for row in rows or ():
            queue = row.pop("queue", None)
            if queue in looks:
                looks[queue] = self.look_of_row(queue, row)
        return looks

    def parameters(self, queues: Sequence[str]) -> Mapping[str, Any]:
        """What the query for all queues is given."""
        return {"queues": list(queues)}

    def look_of_row(self, queue: str, row: dict[str, Any]) -> SourceLook | SourceFault:
        """The look that a row of that query, without the column ``queue``, makes."""
        return look_of(row)

    async def names(self, pattern: str) -> Sequence[str]:
        if not self._names:
            raise SourceAway(f"the pattern {pattern!r} needs options.names, a query of names")
        async with self.connection() as connection:
            values = {"like": like_of(pattern), "most": MOST_NAMES + 1}
            rows = await self.fetch(connection, self._names, values, MOST_NAMES + 1)
        return [str(next(iter(row.values()))) for row in rows or ()]

    async def close(self) -> None:
        if self._connecting is not None:
            connecting, self._connecting = self._connecting, None
            with suppress(self._psycopg.Error, OSError):
                connection = await connecting
                await connection.close()

    async def _look(
        self, connection: AsyncConnection[dict[str, Any]], queue: str
    ) -> SourceLook | SourceFault:
        rows = await self.fetch(connection, self._query, {"queue": queue}, 2)
        if rows is None:
            return SourceFault("the query gives no rows")
        if len(rows) != 1:
            return SourceFault(f"the query gave {len(rows) or 'no'} rows, expected one")
        return look_of(rows[0])

    async def fetch(
        self,
        connection: AsyncConnection[dict[str, Any]],
        query: bytes,
        values: Mapping[str, Any],
        most: int,
    ) -> list[dict[str, Any]] | None:
        """Its first rows; None where it is a statement that gives none."""
        async with connection.cursor() as cursor:
            await cursor.execute(query, values)
            return await cursor.fetchmany(most) if cursor.description else None

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[dict[str, Any]]]:
        """The connection, made where there is none; raises SourceAway for what fails on it."""
        try:
            # Cancelled midway a connect leaves its socket open: it goes on, `close` ends it.
            self._connecting = self._connecting or asyncio.ensure_future(self._connect())
            yield await asyncio.shield(self._connecting)
        except (self._psycopg.Error, OSError, UnicodeDecodeError) as error:
            first_line = str(error).strip().partition("\n")[0]
            raise SourceAway(self._settings.shown(first_line or type(error).__name__)) from error

    async def _connect(self) -> AsyncConnection[dict[str, Any]]:
        seconds = self._settings.timeout_seconds
        limits = {
            "default_transaction_read_only": "on",
            "statement_timeout": str(max(int(seconds * _TIMEOUT_SHARE * 1000), 1)),
            "idle_in_transaction_session_timeout": "10000",
        }
        return await self._connection.connect(
            self._settings.url,
            password=self._settings.secret or None,
            options=" ".join(f"-c {name}={value}" for name, value in limits.items()),
            application_name="penstock-metrics",
            connect_timeout=max(int(seconds), 2),
            autocommit=True,
            row_factory=self._rows,
        )


def like_of(pattern: str) -> str:
    """A pattern of queues as ``like`` has it."""
    escaped = "".join(f"\\{char}" if char in "\\%_" else char for char in pattern)
    return escaped.replace(WILDCARD, "%")


KIND = Kind(
    open=lambda settings: SqlSource(settings, settings.options.query, settings.options.names),
    schemes=SCHEMES,
    options=SqlOptions,
    lists_queues=lambda options: bool(options.names),
    tells_queues_apart=lambda _, options: any(name in options.query for name in _QUEUE_NAMES),
)
