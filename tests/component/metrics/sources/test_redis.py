"""Kinds `celery`, `rq` and `redis-stream`, against a real server and the libraries that use it.

The messages of Celery are put and taken by Kombu, which is what Celery itself does it with.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.redis_server import RedisServer, redis_server

from penstock.config.load import check
from penstock.config.sources import SourceTable
from penstock.config.topology import pools
from penstock.events.envelope import encode
from penstock.metrics.core.sources.meter import SourceMeter
from penstock.metrics.looker import SourceLooker
from penstock.metrics.sources import QueueSource, SourceAway, SourceFault, SourceLook
from penstock.metrics.sources.registry import open_source
from penstock.testing.sources import SourceContract

redis = pytest.importorskip("redis")
kombu = pytest.importorskip("kombu")
rq = pytest.importorskip("rq")


class OnRedis:
    """What the systems of both kinds have in common."""

    queue = "mail"
    counts_claims = True

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.client = redis.Redis.from_url(server.url)
        self.client.flushall()

    async def stop(self) -> None:
        self.server.kill()

    async def start(self) -> None:
        self.server.start()

    async def connections(self) -> int:
        clients = self.client.client_list()
        return sum(client["name"] == "penstock-metrics" for client in clients)


class CeleryQueue(OnRedis):
    """A queue of Celery; producer and consumer are Kombu's."""

    absent, knows_age = None, False

    def __init__(self, server: RedisServer) -> None:
        super().__init__(server)
        self.connect()
        self.taken: list[Any] = []

    def connect(self, **options: Any) -> None:
        self.connection = kombu.Connection(self.server.url, transport_options=options)
        # At the end of the process Kombu would put back what was taken: no server is there then.
        self.connection.default_channel.do_restore = False

    def open(self, **options: Any) -> QueueSource:
        return open_source("shop", SourceTable(kind="celery", url=self.server.url, options=options))

    def publish(self, queue: str = "mail", count: int = 1, **message: Any) -> None:
        """As Celery does: each queue has an exchange of its name."""
        declared = [kombu.Queue(queue, kombu.Exchange(queue), queue)]
        with self.connection.Producer() as producer:
            for _ in range(count):
                producer.publish("body", routing_key=queue, declare=declared, **message)

    async def put(self, count: int) -> None:
        self.publish(count=count)

    async def take(self, count: int) -> None:
        queue = kombu.Queue("mail")(self.connection.default_channel)
        for _ in range(count):
            message = queue.get(no_ack=False)
            assert message is not None
            self.taken.append(message)

    async def end(self, count: int) -> None:
        for _ in range(count):
            self.taken.pop().ack()


class RqQueue(OnRedis):
    """A queue of RQ; jobs are taken and ended by the methods that its worker calls."""

    absent, knows_age = "none-such", True

    def __init__(self, server: RedisServer) -> None:
        super().__init__(server)
        self.taken: list[Any] = []
        self.jobs = rq.Queue("mail", connection=self.client)
        self.jobs.enqueue("time.time")
        self.client.delete(self.jobs.key)

    def open(self) -> QueueSource:
        return open_source("shop", SourceTable(kind="rq", url=self.server.url))

    async def put(self, count: int) -> None:
        for _ in range(count):
            self.jobs.enqueue("time.time")

    async def take(self, count: int) -> None:
        for _ in range(count):
            job, queue = rq.Queue.dequeue_any([self.jobs], None, connection=self.client)
            worker = rq.SimpleWorker([self.jobs], connection=self.client)
            execution = worker.prepare_execution(job)
            worker.prepare_job_execution(job, remove_from_intermediate_queue=True)
            self.taken.append((worker, job, queue, execution))

    async def end(self, count: int) -> None:
        for _ in range(count):
            worker, job, queue, execution = self.taken.pop()
            job.started_at = job.ended_at = datetime.now(UTC)
            worker.handle_job_success(job, queue, queue.started_job_registry, execution)

    async def start(self) -> None:
        await super().start()
        self.jobs.enqueue("time.time")


class Stream(OnRedis):
    """A stream with a consumer group."""

    absent, knows_age = "none-such", True

    def __init__(self, server: RedisServer) -> None:
        super().__init__(server)
        self.taken: list[bytes] = []
        self.client.xgroup_create("mail", "workers", mkstream=True)

    def open(self, **options: Any) -> QueueSource:
        options = {"group": "workers", **options}
        table = SourceTable(kind="redis-stream", url=self.server.url, options=options)
        return open_source("shop", table)

    async def put(self, count: int) -> None:
        for _ in range(count):
            self.client.xadd("mail", {"body": "x"})

    async def take(self, count: int) -> None:
        [(_, entries)] = self.client.xreadgroup("workers", "w1", {"mail": ">"}, count=count)
        self.taken += [entry for entry, _ in entries]

    async def end(self, count: int) -> None:
        self.client.xack("mail", "workers", *(self.taken.pop() for _ in range(count)))

    async def start(self) -> None:
        await super().start()
        self.client.xgroup_create("mail", "workers", mkstream=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


class TestCelery(SourceContract):
    @pytest.fixture
    def system(self, server) -> CeleryQueue:
        return CeleryQueue(server)


class TestRq(SourceContract):
    @pytest.fixture
    def system(self, server) -> RqQueue:
        return RqQueue(server)


class TestStream(SourceContract):
    @pytest.fixture
    def system(self, server) -> Stream:
        return Stream(server)


async def look(source: QueueSource, queue: str = "mail") -> SourceLook:
    found = (await source.look([queue]))[queue]
    assert isinstance(found, SourceLook), found
    return found


# --- Celery -------------------------------------------------------------------------------------
async def test_all_priorities_of_a_queue_are_counted(server) -> None:
    celery = CeleryQueue(server)
    for priority in (0, 3, 5, 9):
        celery.publish(priority=priority)
    source = celery.open()
    assert (await look(source)).waiting == 4
    await source.close()
    source = celery.open(priority_steps=[0])
    assert (await look(source)).waiting == 1
    await source.close()


async def test_claims_are_those_of_the_queue_and_later_tasks_are_delayed(server) -> None:
    celery = CeleryQueue(server)
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    past = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    for eta in (later, later, past, None, "soon"):
        celery.publish(headers={"eta": eta})
    celery.publish("other")
    await celery.take(5)
    kombu.Queue("other")(celery.connection.default_channel).get(no_ack=False)
    source = celery.open()
    looks = await source.look(["mail", "other"])
    assert looks["mail"] == SourceLook(
        waiting=0, claimed=3, delayed=2, ended=0, exact=False, misses_ends=True
    )
    assert looks["other"] == SourceLook(
        waiting=0, claimed=1, delayed=0, ended=0, exact=False, misses_ends=True
    )
    await celery.end(5)
    assert (await look(source)).ended == 3
    await source.close()


async def test_a_prefix_and_another_key_are_followed(server) -> None:
    celery = CeleryQueue(server)
    options = {"global_keyprefix": "shop:", "unacked_key": "held"}
    celery.connect(**options)
    await celery.put(3)
    await celery.take(1)
    source = celery.open(**options)
    seen = await look(source)
    assert (seen.waiting, seen.claimed) == (2, 1)
    await source.close()
    source = celery.open()
    assert (await look(source)).waiting == 0
    await source.close()


async def test_more_claims_than_are_read_are_unknown_not_zero(server) -> None:
    celery = CeleryQueue(server)
    celery.client.hset("unacked", mapping={str(nth): "x" for nth in range(1_001)})
    source = celery.open()
    assert (await look(source)).claimed is None
    celery.client.hdel("unacked", "0")
    assert (await look(source)).claimed == 0
    await source.close()


async def test_a_key_of_another_type_is_a_fault_of_that_queue(server) -> None:
    celery = CeleryQueue(server)
    celery.client.set("odd", "x")
    await celery.put(1)
    source = celery.open()
    looks = await source.look(["odd", "mail"])
    assert isinstance(looks["odd"], SourceFault)
    assert "WRONGTYPE" in looks["odd"].text
    assert isinstance(looks["mail"], SourceLook)
    await source.close()


# --- RQ -----------------------------------------------------------------------------------------
async def test_scheduled_jobs_are_delayed_and_ends_are_counted(server) -> None:
    system = RqQueue(server)
    system.jobs.enqueue_in(timedelta(hours=1), "time.time")
    await system.put(3)
    await system.take(2)
    source = system.open()
    seen = await look(source)
    assert (seen.waiting, seen.claimed, seen.delayed, seen.ended) == (1, 2, 1, 0)
    await system.end(2)
    seen = await look(source)
    assert (seen.waiting, seen.claimed, seen.ended) == (1, 0, 2)
    await source.close()


async def test_a_real_worker_empties_what_was_counted(server) -> None:
    system = RqQueue(server)
    await system.put(5)
    source = system.open()
    assert (await look(source)).waiting == 5
    rq.SimpleWorker([system.jobs], connection=system.client).work(burst=True)
    seen = await look(source)
    assert (seen.waiting, seen.claimed, seen.oldest_seconds) == (0, 0, 0.0)
    await source.close()


# --- streams ------------------------------------------------------------------------------------
async def test_counters_of_a_stream_are_exact(server) -> None:
    stream = Stream(server)
    source = stream.open()
    await stream.put(10)
    await stream.take(6)
    await stream.end(4)
    seen = await look(source)
    assert (seen.waiting, seen.claimed, seen.arrived, seen.ended, seen.exact) == (4, 2, 10, 4, True)
    await source.close()


async def test_a_lag_that_the_server_does_not_know_is_marked(server) -> None:
    stream = Stream(server)
    await stream.put(10)
    await stream.take(2)
    [middle] = stream.client.xrange("mail", count=6)[5:]
    stream.client.xdel("mail", middle[0])
    source = stream.open()
    seen = await look(source)
    assert not seen.exact
    assert seen.waiting == 9
    await stream.take(7)
    assert (await look(source)).waiting == 0
    await source.close()


async def test_a_stream_that_is_deleted_and_a_group_that_is_not_there_are_faults(server) -> None:
    stream = Stream(server)
    source = stream.open(group="of-{queue}")
    [fault] = (await source.look(["mail"])).values()
    assert isinstance(fault, SourceFault)
    assert fault.text.startswith("stream 'mail' has no consumer group 'of-mail'; create it")
    stream.client.xgroup_create("mail", "of-mail")
    await look(source)
    stream.client.delete("mail")
    [fault] = (await source.look(["mail"])).values()
    assert isinstance(fault, SourceFault)
    assert "no such key" in fault.text
    await source.close()


async def test_a_wrong_password_is_named_without_it(server, tmp_path) -> None:
    stream = Stream(server)
    stream.client.config_set("requirepass", "right")
    secret = tmp_path / "secret"
    try:
        for password in ("wr0ng", "right"):
            secret.write_text(password)
            secret.chmod(0o600)
            table = SourceTable(
                kind="redis-stream", url=server.url, options={"group": "workers"},
                secret_file=str(secret),
            )  # fmt: skip
            source = open_source("shop", table)
            if password == "right":
                await look(source)
            else:
                with pytest.raises(SourceAway) as caught:
                    await source.look(["mail"])
                assert "wr0ng" not in str(caught.value)
            await source.close()
    finally:
        stream.client.config_set("requirepass", "")


# --- patterns -----------------------------------------------------------------------------------
async def test_names_of_celery_are_those_of_its_bindings_also_of_empty_queues(server) -> None:
    celery = CeleryQueue(server)
    channel = celery.connection.default_channel
    for name in ("mail-a", "mail-b", "sms"):
        kombu.Queue(name, kombu.Exchange(name), name)(channel).declare()
    kombu.Queue("mail-c", kombu.Exchange("tasks"), "routed.c")(channel).declare()
    kombu.Queue("mail-x.celery.pidbox", kombu.Exchange("celery.pidbox"), "")(channel).declare()
    source = celery.open()
    assert sorted(await source.names("mail-*")) == ["mail-a", "mail-b", "mail-c"]
    kombu.Queue("mail-a", kombu.Exchange("mail-a"), "mail-a")(channel).delete()
    assert sorted(await source.names("mail-*")) == ["mail-b", "mail-c"]
    await source.close()


async def test_characters_that_redis_reads_in_patterns_stand_for_themselves(server) -> None:
    stream = Stream(server)
    for name in ("a[b]?-1", "ab?-1", "a[b]x-1", "a\\[b]?-1"):
        stream.client.xadd(name, {"body": "x"})
    source = stream.open()
    assert await source.names("a[b]?-*") == ["a[b]?-1"]
    assert await source.names("a\\*") == ["a\\[b]?-1"]
    await source.close()


async def test_a_database_with_too_many_keys_is_not_searched(server, monkeypatch) -> None:
    monkeypatch.setattr("penstock.metrics.sources.redis_client._MOST_SCANS", 2)
    monkeypatch.setattr("penstock.metrics.sources.redis_client._SCANNED_AT_ONCE", 10)
    stream = Stream(server)
    stream.client.mset({f"key{nth}": "x" for nth in range(1_000)})
    source = stream.open()
    with pytest.raises(SourceAway, match="name these without a pattern"):
        await source.names("mail*")
    await source.close()


@pytest.mark.parametrize("kind", ["rq", "celery"])
async def test_ten_thousand_queues_in_one_redis_are_one_pool(server, kind) -> None:
    # given as many queues as patterns can name, filled as the libraries do
    count = 10_000
    system = {"rq": RqQueue, "celery": CeleryQueue}[kind](server)
    waiting = fill(system, kind, count)
    tree = {
        "sources": {"shop": {"kind": kind, "url": server.url}},
        "pools": {"all": {"source": "shop", "command": ["true"], "queues": ["bulk-*"]}},
    }
    settings = check(tree)
    meter = SourceMeter(pools(settings)["all"], 60.0, 1.0)
    looker = SourceLooker("shop", settings.sources["shop"], [meter])
    try:
        for _ in range(2):
            pause = await looker.look()
            # then one pool's figures are exact sums, and its snapshot is as small as any other
            now = time.monotonic()
            meter.observe(now)
            envelope = {"id": "1", "source": "t"}
            snapshot = meter.snapshot(now, datetime.now(UTC), envelope, "tick")
            assert snapshot is not None
            assert (snapshot.waiting, snapshot.source_fault) == (waiting, "")
            assert len(looker._patterns.names) == count
            assert (snapshot.queues, len(encode(snapshot)) < 3_000) == (("bulk-*",), True)
            assert pause >= settings.sources["shop"].look_seconds
    finally:
        await looker.close()


def fill(system: Any, kind: str, count: int) -> int:
    """Queue N holds N % 3 messages; returns how many there are."""
    pipeline = system.client.pipeline(transaction=False)
    for nth in range(count):
        name = f"bulk-{nth:05}"
        if kind == "rq":
            queue = rq.Queue(name, connection=system.client)
            pipeline.sadd(queue.redis_queues_keys, queue.key)
            for job in range(nth % 3):
                queue.push_job_id(f"{name}-{job}", pipeline=pipeline)
        else:
            pipeline.sadd("_kombu.binding.bulk", f"{name}\x06\x16\x06\x16{name}")
            for _ in range(nth % 3):
                pipeline.lpush(name, b"{}")
    pipeline.execute()
    return sum(nth % 3 for nth in range(count))
