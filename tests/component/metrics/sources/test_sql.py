"""Kind `sql`, against a real PostgreSQL server."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.postgres import SERVER_USER, postgres

from penstock.config.sources import SourceTable
from penstock.metrics.sources import QueueSource, SourceAway, SourceFault
from penstock.metrics.sources.registry import open_source
from penstock.testing.sources import SourceContract

psycopg = pytest.importorskip("psycopg")

QUERY = """
    select count(*) filter (where state = 'waiting') as waiting,
           count(*) filter (where state = 'claimed') as claimed,
           extract(epoch from now() - min(came) filter (where state = 'waiting')) as oldest_seconds
    from messages join queues on queue = name where name = %(queue)s group by name
"""
COUNTED = """
    select (select count(*) from messages where queue = name and state = 'waiting') as waiting,
           (select count(*) from messages where queue = name and state = 'claimed') as claimed,
           coalesce((select extract(epoch from clock_timestamp() - min(came)) from messages
                     where queue = name and state = 'waiting'), 0) as oldest_seconds
    from queues where name = %(queue)s
"""

AT_ONCE = """
    select name as queue, count(*) filter (where state = 'waiting') as waiting,
           count(*) filter (where state = 'claimed') as claimed
    from queues left join messages on queue = name where name = any(%(queues)s) group by name
"""


class Table:
    """A table of messages."""

    queue, absent = "mail", "gone"
    counts_claims, knows_age = True, True

    def __init__(self, environment: dict[str, str]) -> None:
        self.use(environment)
        self.write("drop table if exists messages, queues")
        self.write("create table queues (name text)")
        self.write("create table messages (queue text, state text, came timestamptz)")
        self.write("insert into queues values ('mail')")

    def use(self, environment: dict[str, str]) -> None:
        self.url, self._folder = environment["DATABASE_URL"], Path(environment["PGHOST"])

    def write(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)

    def open(self, query: str = COUNTED, **more: float) -> QueueSource:
        options = {"query": query, "names": "select name from queues where name like %(like)s"}
        table = SourceTable(kind="sql", url=self.url, options=options, **more)
        return open_source("shop", table)

    async def put(self, count: int) -> None:
        self.write(
            "insert into messages select 'mail', 'waiting', clock_timestamp() "
            f"from generate_series(1, {count})"
        )

    def _move(self, old: str, new: str, count: int) -> None:
        self.write(
            f"update messages set state = '{new}' where ctid in "
            f"(select ctid from messages where state = '{old}' limit {count})"
        )

    async def take(self, count: int) -> None:
        self._move("waiting", "claimed", count)

    async def end(self, count: int) -> None:
        self._move("claimed", "ended", count)

    def _control(self, *arguments: str) -> None:
        subprocess.run(
            ["pg_ctl", "--pgdata", str(self._folder / "data"), "--wait", "--silent", *arguments],
            cwd=self._folder, check=True, stdout=subprocess.DEVNULL,
            user=SERVER_USER if os.getuid() == 0 else None,
        )  # fmt: skip

    async def stop(self) -> None:
        self._control("--mode", "immediate", "stop")

    async def start(self) -> None:
        options = f"-c listen_addresses='' -c unix_socket_directories='{self._folder}' -c fsync=off"
        self._control("--log", str(self._folder / "log"), "--options", options, "start")

    async def connections(self) -> int:
        with psycopg.connect(self.url) as connection:
            [count] = connection.execute(
                "select count(*) from pg_stat_activity where application_name = 'penstock-metrics'"
            ).fetchone()
        return count


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    with postgres() as environment:
        yield environment


@pytest.fixture
def system(server) -> Table:
    return Table(server)


class TestSql(SourceContract):
    @pytest.fixture
    def system(self, server) -> Table:
        return Table(server)


async def test_a_query_cannot_write(system) -> None:
    source = system.open("insert into queues values (%(queue)s) returning 1 as waiting")
    with pytest.raises(SourceAway, match="read-only transaction"):
        await source.look(["mail"])
    await source.close()


async def test_the_server_ends_a_query_that_takes_too_long(system) -> None:
    source = system.open("select 1 as waiting, pg_sleep(3600) as epoch", timeout_seconds=0.2)
    with pytest.raises(SourceAway, match="statement timeout"):
        await source.look(["mail"])
    await source.close()


async def test_rows_without_end_are_given_up(system) -> None:
    millions = "generate_series(1, 6000) as thousands, generate_series(1, 6000) as ones"
    rows = f"select 1 as waiting from {millions} where %(queue)s <> ''"
    source = system.open(rows, timeout_seconds=60)
    with pytest.raises(SourceAway, match="more than 8000000 bytes"):
        await source.look(["mail"])
    await source.close()


async def test_ten_thousand_long_names_are_read(system) -> None:
    system.write("insert into queues select repeat('m', 190) || n from generate_series(1, 9999) n")
    source = system.open()
    assert len(await source.names("m*")) == 10_000
    await source.close()


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("select 1 as waiting where false and %(queue)s = ''", "gave no rows"),
        ("select 1 as waiting from generate_series(1, 3) where %(queue)s <> ''", "gave 2 rows"),
        ("select 1 as depth, %(queue)s as epoch", "found the figure 'depth'"),
        ("select null::int as waiting, %(queue)s as epoch", "no figure 'waiting'"),
        (QUERY, "gave no rows"),
    ],
)
async def test_a_query_without_the_figures_of_a_queue_is_a_fault(system, query, text) -> None:
    source = system.open(query)
    [look] = (await source.look(["mail"])).values()
    assert isinstance(look, SourceFault)
    assert text in look.text
    await source.close()


async def test_a_wrong_query_is_an_error_that_names_the_cause(system) -> None:
    source = system.open("select count(*) as waiting from no_such_table")
    with pytest.raises(SourceAway, match="no_such_table"):
        await source.look(["mail"])
    await source.close()


async def test_one_query_gives_the_figures_of_all_queues(system) -> None:
    system.write("insert into queues values ('mail-low')")
    await system.put(3)
    source = system.open(AT_ONCE)
    looks = await source.look(["mail-low", "gone", "mail"])
    assert [looks[name].waiting for name in ("mail", "mail-low")] == [3, 0]
    assert looks["gone"] == SourceFault("the query gave no row of it")
    assert sorted(await source.names("mail*")) == ["mail", "mail-low"]
    await source.close()


async def test_a_pattern_without_a_query_of_names_is_no_empty_list(system) -> None:
    table = SourceTable(kind="sql", url=system.url, options={"query": QUERY})
    source = open_source("shop", table)
    with pytest.raises(SourceAway, match=r"needs options\.names"):
        await source.names("mail*")
    await source.close()
