"""Kind ``pgmq``: queues of the PostgreSQL extension pgmq.

A queue is a table ``pgmq.q_NAME``. A message that was read stays there, and is visible again at its
time ``vt``; one that was deleted or archived is gone from it. The table's sequence counts all that
were ever sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.metrics.core.sources.look import SourceFault, SourceLook, age_of
from penstock.metrics.sources.source import Kind, SourceSettings
from penstock.metrics.sources.sql import SCHEMES, SqlSource

if TYPE_CHECKING:
    from psycopg.sql import Composed

MOST_ROWS = 100_000
"""More rows of a queue are not counted, and the figures are not exact."""
_AT_ONCE = 100
"""Queues of one statement."""
_EXIST = b"select queue_name from pgmq.meta where queue_name = any(%(queues)s)"
_NAMES = "select queue_name from pgmq.meta where queue_name like %(like)s limit %(most)s"
_FIGURES = """
select {name} as queue, rows.*, (
    select case when is_called then last_value else 0 end from pgmq.{sequence}
) as sent from (
    select count(*) as stored,
           count(*) filter (where vt <= now()) as waiting,
           count(*) filter (where vt > now() and read_ct > 0) as claimed,
           count(*) filter (where vt > now() and read_ct = 0) as delayed,
           extract(epoch from now())
               - extract(epoch from min(vt) filter (where vt <= now())) as oldest_seconds
    from (select vt, read_ct from pgmq.{table} limit {most}) as messages
) as rows
"""


class PgmqSource(SqlSource):
    """Two statements a look, and one more for each hundred queues."""

    def __init__(self, settings: SourceSettings) -> None:
        super().__init__(settings, "", _NAMES)

    async def look(self, queues: Sequence[str]) -> Mapping[str, SourceLook | SourceFault]:
        looks: dict[str, SourceLook | SourceFault] = {
            queue: SourceFault(f"pgmq has no queue {queue!r}") for queue in queues
        }
        async with self.connection() as connection:
            values = {"queues": list(queues)}
            rows = await self.fetch(connection, _EXIST, values, len(queues))
            names = [row["queue_name"] for row in rows or ()]
            for start in range(0, len(names), _AT_ONCE):
                query = self._figures(names[start : start + _AT_ONCE])
                figures = await self.fetch(connection, query.as_bytes(connection), {}, _AT_ONCE)
                looks |= {row.pop("queue"): _look(row) for row in figures or ()}
        return looks

    def _figures(self, names: Sequence[str]) -> Composed:
        from psycopg import sql  # noqa: PLC0415 - an extra

        def parts() -> Iterator[Composed]:
            for name in names:
                table = f"q_{name}".lower()  # as pgmq.format_table_name has it
                yield sql.SQL(_FIGURES).format(
                    name=sql.Literal(name),
                    table=sql.Identifier(table),
                    sequence=sql.Identifier(f"{table}_msg_id_seq"),
                    most=sql.Literal(MOST_ROWS + 1),
                )

        return sql.SQL(" union all ").join(parts())


def _look(row: Mapping[str, Any]) -> SourceLook:
    """What is delayed has not come yet: else it would seem to have come and to be handled."""
    is_whole = row["stored"] <= MOST_ROWS
    oldest = row["oldest_seconds"]
    return SourceLook(
        waiting=row["waiting"],
        claimed=row["claimed"],
        delayed=row["delayed"],
        oldest_seconds=0.0 if oldest is None else age_of(float(oldest)),
        arrived=max(row["sent"] - row["delayed"], 0) if is_whole else None,
        ended=max(row["sent"] - row["stored"], 0) if is_whole else None,
        exact=is_whole,
    )


KIND = Kind(open=PgmqSource, schemes=SCHEMES, lists_queues=lambda _: True)
