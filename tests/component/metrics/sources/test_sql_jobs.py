"""Kinds `procrastinate`, `oban`, `river` and `pgmq`, against a real PostgreSQL server.

procrastinate is the real library. Oban is for Elixir, River for Go and pgmq an extension: their
tables are made here as their own SQL makes them (`lib/oban/migrations/postgres/v01.ex`, `v08.ex`,
`v09.ex` of oban-bg/oban; `riverpgxv5/migration/main/002_initial_schema.up.sql` and `004_…` of
riverqueue/river; `pgmq-extension/sql/pgmq.sql` of pgmq/pgmq), and changed as their clients do.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.component.metrics.sources.test_sql import Table
from tests.postgres import postgres

from penstock.config.sources import SourceTable
from penstock.events.envelope import utc_now
from penstock.metrics.core.sources.look import checked
from penstock.metrics.sources import QueueSource, SourceFault, SourceLook
from penstock.metrics.sources.registry import open_source
from penstock.testing.sources import SourceContract

psycopg = pytest.importorskip("psycopg")
procrastinate = pytest.importorskip("procrastinate")


class Jobs(Table):
    """A PostgreSQL whose tables are of one of the kinds."""

    kind = ""
    absent: str | None = None

    def __init__(self, environment: dict[str, str]) -> None:
        self.use(environment)
        self.write("drop schema public cascade; create schema public")
        self.write("drop schema if exists pgmq cascade")
        self.make()

    def make(self) -> None:
        raise NotImplementedError

    def open(self, **options: Any) -> QueueSource:
        return open_source("shop", SourceTable(kind=self.kind, url=self.url, options=options))

    def rows(self, statement: str) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement).fetchall()


class Procrastinate(Jobs):
    """Jobs are put, taken and ended by the library's own statements."""

    kind = "procrastinate"

    def make(self) -> None:
        connector = procrastinate.SyncPsycopgConnector(conninfo=self.url)
        self.app = procrastinate.App(connector=connector)
        self.app.open()
        self.app.schema_manager.apply_schema()
        self.task = self.app.task(name="nothing", queue="mail")(int)
        self.taken: list[int] = []

    def close(self) -> None:
        self.app.close()

    async def put(self, count: int, **options: Any) -> None:
        for _ in range(count):
            self.task.configure(**options).defer()

    async def take(self, count: int) -> None:
        for _ in range(count):
            [row] = self.rows("select id from procrastinate_fetch_job_v2(array['mail'], null)")
            self.taken.append(row[0])

    async def end(self, count: int, status: str = "succeeded") -> None:
        for _ in range(count):
            self.write(f"select procrastinate_finish_job_v1({self.taken.pop()}, '{status}', false)")

    async def stop(self) -> None:
        self.app.close()
        await super().stop()

    async def start(self) -> None:
        await super().start()
        self.app.open()


class Oban(Jobs):
    kind = "oban"

    def make(self) -> None:
        self.write(
            "create type oban_job_state as enum ('available', 'scheduled', 'executing',"
            " 'retryable', 'completed', 'discarded', 'cancelled');"
            "create table oban_jobs (id bigserial primary key,"
            " state oban_job_state not null default 'available',"
            " queue text not null default 'default', worker text not null, args jsonb not null,"
            " errors jsonb[] not null default '{}', attempt int not null default 0,"
            " max_attempts int not null default 20,"
            " inserted_at timestamp not null default timezone('UTC', now()),"
            " scheduled_at timestamp not null default timezone('UTC', now()),"
            " attempted_at timestamp, completed_at timestamp, discarded_at timestamp,"
            " cancelled_at timestamp, priority int default 0, tags text[] default '{}');"
            "create index on oban_jobs (state, queue, priority, scheduled_at, id)"
        )

    async def put(self, count: int) -> None:
        for _ in range(count):
            self.write("insert into oban_jobs (queue, worker, args) values ('mail', 'M', '{}')")

    async def take(self, count: int) -> None:
        self._change("executing", "attempted_at", "available", count)

    async def end(self, count: int, state: str = "completed") -> None:
        self._change(state, f"{state}_at", "executing", count)

    def _change(self, state: str, column: str, old: str, count: int) -> None:
        self.write(
            f"update oban_jobs set state = '{state}', {column} = timezone('UTC', now()) where id in"
            f" (select id from oban_jobs where state = '{old}' order by id limit {count})"
        )


class River(Jobs):
    kind = "river"

    def make(self) -> None:
        self.write(
            "create type river_job_state as enum ('available', 'cancelled', 'completed',"
            " 'discarded', 'pending', 'retryable', 'running', 'scheduled');"
            "create table river_job (id bigserial primary key,"
            " state river_job_state not null default 'available',"
            " attempt smallint not null default 0, max_attempts smallint not null,"
            " attempted_at timestamptz, created_at timestamptz not null default now(),"
            " finalized_at timestamptz, scheduled_at timestamptz not null default now(),"
            " priority smallint not null default 1, args jsonb not null, attempted_by text[],"
            " errors jsonb[], kind text not null, metadata jsonb not null default '{}',"
            " queue text not null default 'default', tags varchar(255)[]);"
            "create table river_queue (name text primary key not null,"
            " created_at timestamptz not null default now(), metadata jsonb not null default '{}',"
            " paused_at timestamptz, updated_at timestamptz not null);"
            "insert into river_queue (name, updated_at) values ('mail', now())"
        )

    async def put(self, count: int) -> None:
        for _ in range(count):
            self.write(
                "insert into river_job (queue, kind, args, max_attempts)"
                " values ('mail', 'm', '{}', 25)"
            )

    async def take(self, count: int) -> None:
        self._change("running", "attempted_at", "available", count)

    async def end(self, count: int, state: str = "completed") -> None:
        self._change(state, "finalized_at", "running", count)

    def _change(self, state: str, column: str, old: str, count: int) -> None:
        self.write(
            f"update river_job set state = '{state}', {column} = now() where id in"
            f" (select id from river_job where state = '{old}' order by id limit {count})"
        )


class Pgmq(Jobs):
    kind, absent = "pgmq", "gone"

    def make(self) -> None:
        self.write(
            "create schema pgmq; create table pgmq.meta (queue_name varchar unique not null,"
            " is_partitioned boolean not null, is_unlogged boolean not null,"
            " created_at timestamptz default now() not null)"
        )
        self.create("mail")
        self.taken: list[int] = []

    def create(self, name: str) -> None:
        self.write(
            f'create table pgmq."q_{name.lower()}" ('
            " msg_id bigint primary key generated always as identity,"
            " read_ct int default 0 not null, enqueued_at timestamptz default now() not null,"
            " vt timestamptz not null, message jsonb, headers jsonb);"
            f"insert into pgmq.meta values ('{name}', false, false)"
        )

    async def put(self, count: int, delay_seconds: float = 0.0) -> None:
        self.write(
            "insert into pgmq.q_mail (vt, message) select clock_timestamp() +"
            f" make_interval(secs => {delay_seconds}), '{{}}' from generate_series(1, {count})"
        )

    async def take(self, count: int) -> None:
        taken = self.rows(
            "update pgmq.q_mail set vt = clock_timestamp() + interval '1 hour',"
            " read_ct = read_ct + 1 where msg_id in (select msg_id from pgmq.q_mail"
            f" where vt <= clock_timestamp() order by msg_id limit {count}) returning msg_id"
        )
        self.taken += [row[0] for row in taken]

    async def end(self, count: int) -> None:
        for _ in range(count):
            self.write(f"delete from pgmq.q_mail where msg_id = {self.taken.pop()}")


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    with postgres() as environment:
        yield environment


@pytest.fixture
def procrastinated(server) -> Iterator[Procrastinate]:
    system = Procrastinate(server)
    yield system
    system.close()


class TestProcrastinate(SourceContract):
    @pytest.fixture
    def system(self, procrastinated) -> Procrastinate:
        return procrastinated


class TestOban(SourceContract):
    @pytest.fixture
    def system(self, server) -> Oban:
        return Oban(server)


class TestRiver(SourceContract):
    @pytest.fixture
    def system(self, server) -> River:
        return River(server)


class TestPgmq(SourceContract):
    @pytest.fixture
    def system(self, server) -> Pgmq:
        return Pgmq(server)


async def look(source: QueueSource, queue: str = "mail") -> SourceLook:
    found = (await source.look([queue]))[queue]
    assert isinstance(found, SourceLook), found
    return found


# --- procrastinate ------------------------------------------------------------------------------
async def test_all_figures_of_procrastinate_are_exact(procrastinated) -> None:
    source = procrastinated.open()
    await look(source)
    await procrastinated.put(5)
    await procrastinated.put(2, schedule_in={"hours": 1})
    await procrastinated.put(1, schedule_at=utc_now() - timedelta(hours=2))
    await procrastinated.take(3)
    found = await look(source)
    assert (found.waiting, found.claimed, found.delayed, found.ended) == (3, 3, 2, 0)
    assert found.exact
    assert found.oldest_seconds == pytest.approx(7200, abs=60)
    await procrastinated.end(1)
    await procrastinated.end(1, "failed")
    assert (await look(source)).ended == 2
    await source.close()


async def test_ends_are_counted_once_whatever_the_mark_does(procrastinated) -> None:
    source = procrastinated.open()
    await look(source)
    counts = []
    for _ in range(4):
        await procrastinated.put(2)
        await procrastinated.take(2)
        await procrastinated.end(2)
        counts.append((await look(source)).ended)
        # the mark moves over what is older than a minute
        procrastinated.write("update procrastinate_events set at = at - interval '2 minutes'")
        counts.append((await look(source)).ended)
    assert counts == [2, 2, 4, 4, 6, 6, 8, 8]
    await source.close()


async def test_a_retried_job_waits_since_it_is_due_again(procrastinated) -> None:
    source = procrastinated.open()
    await procrastinated.put(1)
    procrastinated.write("update procrastinate_events set at = at - interval '1 hour'")
    assert (await look(source)).oldest_seconds == pytest.approx(3600, abs=60)
    await procrastinated.take(1)
    [job] = procrastinated.taken
    procrastinated.write(f"select procrastinate_retry_job_v2({job}, now(), null, null, null)")
    found = await look(source)
    assert (found.waiting, found.claimed, found.ended) == (1, 0, 0)
    assert found.oldest_seconds == pytest.approx(0, abs=60)
    await source.close()


async def test_a_queue_beyond_the_bound_is_counted_up_to_it_and_marked(
    procrastinated, monkeypatch
) -> None:
    procrastinated.write(
        "insert into procrastinate_jobs (queue_name, task_name)"
        " select 'mail', 'nothing' from generate_series(1, 100001)"
    )
    source = procrastinated.open()
    found = await look(source)
    assert (found.waiting, found.exact) == (100_000, False)
    procrastinated.write("delete from procrastinate_jobs where id in (select min(id) from"
                         " procrastinate_jobs)")  # fmt: skip
    found = await look(source)
    assert (found.waiting, found.exact) == (100_000, True)
    await source.close()


async def test_where_jobs_are_deleted_at_their_end_no_ends_are_reported(procrastinated) -> None:
    source = procrastinated.open(counts_ended=False)
    await procrastinated.put(1)
    assert (await look(source)).ended is None
    await source.close()


async def test_tables_of_another_schema_are_found_where_it_is_named(procrastinated) -> None:
    await procrastinated.put(3)
    procrastinated.write("alter schema public rename to work; create schema public")
    source = procrastinated.open(schema="work")
    try:
        assert (await look(source)).waiting == 3
        assert await source.names("*") == ["mail"]
    finally:
        await source.close()
        procrastinated.write("drop schema public; alter schema work rename to public")


# --- Oban and River -----------------------------------------------------------------------------
@pytest.mark.parametrize(("system", "table"), [(Oban, "oban_jobs"), (River, "river_job")])
async def test_states_of_other_libraries_tables(server, system, table) -> None:
    jobs = system(server)
    source = jobs.open()
    await look(source)
    await jobs.put(6)
    jobs.write(
        f"update {table} set state = 'scheduled', scheduled_at = scheduled_at + interval '1 hour'"
        " where id = 1;"
        f"update {table} set state = 'retryable', scheduled_at = scheduled_at - interval '1 hour'"
        " where id = 2"
    )
    await jobs.take(3)
    await jobs.end(1)
    await jobs.end(1, "cancelled")
    found = await look(source)
    # one that is due is moved to the available ones within moments
    assert (found.waiting, found.claimed, found.delayed, found.ended) == (2, 1, 1, 2)
    assert found.oldest_seconds == pytest.approx(3600, abs=60)
    await source.close()


# --- pgmq ---------------------------------------------------------------------------------------
async def test_counters_of_pgmq_are_exact(server) -> None:
    pgmq = Pgmq(server)
    source = pgmq.open()
    await pgmq.put(5)
    await pgmq.put(2, delay_seconds=3600)
    await pgmq.take(3)
    await pgmq.end(2)
    found = await look(source)
    assert (found.waiting, found.claimed, found.delayed) == (2, 1, 2)
    assert (found.arrived, found.ended, found.exact) == (5, 2, True)
    pgmq.write("update pgmq.q_mail set vt = now() - interval '1 hour' where read_ct > 0")
    found = await look(source)
    assert (found.waiting, found.claimed) == (3, 0)
    assert found.oldest_seconds == pytest.approx(3600, abs=60)
    await source.close()


async def test_names_of_pgmq_are_quoted_and_their_tables_are_in_lower_case(server) -> None:
    pgmq = Pgmq(server)
    names = ["Mail-A", 'odd"; drop table pgmq.meta', *(f"bulk_{nth}" for nth in range(150))]
    for name in names[:1] + names[2:]:
        pgmq.create(name)
    await pgmq.put(3)
    source = pgmq.open()
    looks = await source.look([*names, "mail"])
    assert isinstance(looks.pop(names[1]), SourceFault)
    assert sum(look.waiting for look in looks.values() if isinstance(look, SourceLook)) == 3
    assert len(await source.names("bulk_*")) == 150
    assert await source.names("bulk%*") == []
    await source.close()


# --- times that senders invented ----------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (Procrastinate, "procrastinate_jobs set scheduled_at"),
        (Oban, "oban_jobs set scheduled_at"),
        (River, "river_job set scheduled_at"),
        (Pgmq, "pgmq.q_mail set vt"),
    ],
)
async def test_an_impossible_time_hides_no_queue(server, kind, column) -> None:
    system = kind(server)
    await system.put(2)
    source = system.open()
    ages = {"-infinity": None, "4713-01-01 BC": None, "infinity": 0.0, "20000-01-01": 0.0}
    for time, age in ages.items():
        system.write(f"update {column} = '{time}'")
        figures = checked(await look(source))
        assert isinstance(figures, SourceLook), figures
        assert (figures.waiting + figures.delayed, figures.oldest_seconds) == (2, age)
    await source.close()
    if isinstance(system, Procrastinate):
        system.close()
