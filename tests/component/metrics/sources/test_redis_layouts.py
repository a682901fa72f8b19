"""Kinds `laravel` and `sidekiq`, against a real server.

There is no PHP and no Ruby here. Keys are written as the libraries' own sources write them:
`src/Illuminate/Queue/RedisQueue.php` and `LuaScripts.php` of laravel/framework;
`lib/sidekiq/client.rb` (`atomic_push`), `launcher.rb` (`heartbeat`) and `processor.rb` (`stats`)
of sidekiq/sidekiq.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.component.metrics.sources.test_redis import OnRedis
from tests.redis_server import RedisServer, redis_server

from penstock.config.sources import SourceTable
from penstock.metrics.core.sources.look import checked
from penstock.metrics.sources import QueueSource, SourceAway, SourceFault, SourceLook
from penstock.metrics.sources.registry import open_source
from penstock.testing.sources import SourceContract

PREFIX = "shop_database_"


class LaravelQueue(OnRedis):
    """A queue of Laravel 12, whose payloads have the time of their creation."""

    absent, knows_age = None, True
    key = f"{PREFIX}queues:mail"

    def __init__(self, server: RedisServer) -> None:
        super().__init__(server)
        self.reserved: list[str] = []
        self.sent = 0

    def open(self, prefix: str = PREFIX) -> QueueSource:
        table = SourceTable(kind="laravel", url=self.server.url, options={"prefix": prefix})
        return open_source("shop", table)

    def payload(self, **more: Any) -> str:
        self.sent += 1
        return json.dumps(
            {"uuid": f"u{self.sent}", "displayName": "Mail", "job": "Handler@call", "attempts": 0,
             "delay": None, "data": {}, "createdAt": int(time.time()), **more}
        )  # fmt: skip

    async def put(self, count: int) -> None:
        for _ in range(count):
            self.client.rpush(self.key, self.payload())
            self.client.rpush(f"{self.key}:notify", 1)

    def later(self, at: float, payload: str) -> None:
        self.client.zadd(f"{self.key}:delayed", {payload: int(at)})

    async def take(self, count: int) -> None:
        for _ in range(count):
            job = json.loads(self.client.lpop(self.key))
            taken = json.dumps({**job, "attempts": job["attempts"] + 1})
            self.client.zadd(f"{self.key}:reserved", {taken: int(time.time()) + 90})
            self.client.lpop(f"{self.key}:notify")
            self.reserved.append(taken)

    async def end(self, count: int) -> None:
        for _ in range(count):
            self.client.zrem(f"{self.key}:reserved", self.reserved.pop())


class SidekiqQueue(OnRedis):
    """A queue of Sidekiq and one process, which reports what it does at once."""

    absent, knows_age = "none-such", True

    def __init__(self, server: RedisServer, milliseconds: bool = False) -> None:
        super().__init__(server)
        self._factor = 1000 if milliseconds else 1
        self.client.sadd("queues", "mail")
        self.running: list[str] = []
        self.sent = 0

    def open(self, **options: Any) -> QueueSource:
        table = SourceTable(kind="sidekiq", url=self.server.url, options=options)
        return open_source("shop", table)

    def job(self, queue: str = "mail", **more: Any) -> str:
        self.sent += 1
        return json.dumps(
            {"class": "Mail", "args": [], "queue": queue, "jid": str(self.sent), **more}
        )

    async def put(self, count: int, queue: str = "mail") -> None:
        jobs = [self.job(queue, enqueued_at=time.time() * self._factor) for _ in range(count)]
        self.client.sadd("queues", queue)
        self.client.lpush(f"queue:{queue}", *jobs)

    async def take(self, count: int) -> None:
        self.running += [self.client.rpop("queue:mail").decode() for _ in range(count)]
        self.beat()

    def beat(self) -> None:
        identity = "host:1:abcdef"
        self.client.delete(f"{identity}:work")
        for thread, payload in enumerate(self.running):
            work = {"queue": "mail", "payload": payload, "run_at": int(time.time())}
            self.client.hset(f"{identity}:work", f"t{thread}", json.dumps(work))
        self.client.sadd("processes", identity)

    async def end(self, count: int) -> None:
        del self.running[:count]
        self.client.incrby("stat:processed", count)
        self.beat()

    async def start(self) -> None:
        await super().start()
        self.client.sadd("queues", "mail")


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


class TestLaravel(SourceContract):
    @pytest.fixture
    def system(self, server) -> LaravelQueue:
        return LaravelQueue(server)


class TestSidekiq(SourceContract):
    @pytest.fixture
    def system(self, server) -> SidekiqQueue:
        return SidekiqQueue(server)


async def look(source: QueueSource, queue: str = "mail") -> SourceLook:
    found = (await source.look([queue]))[queue]
    assert isinstance(found, SourceLook), found
    return found


# --- Laravel ------------------------------------------------------------------------------------
async def test_jobs_of_laravel_that_are_due_wait_and_others_are_delayed(server) -> None:
    laravel = LaravelQueue(server)
    await laravel.put(2)
    laravel.later(time.time() + 3600, laravel.payload(delay=3600))
    laravel.later(time.time() - 5, laravel.payload(delay=5))
    source = laravel.open()
    found = await look(source)
    assert (found.waiting, found.delayed, found.claimed) == (3, 1, 0)
    await laravel.take(2)
    await laravel.end(1)
    found = await look(source)
    assert (found.waiting, found.claimed) == (1, 1)
    await laravel.end(1)
    assert (await look(source)).ended == 1
    await source.close()


@pytest.mark.parametrize(
    ("payload", "age"),
    [
        ({}, 500),
        ({"delay": 480}, 20),
        ({"attempts": 1}, None),  # it was released
        ({"createdAt": None}, None),  # of an older version
        ({"createdAt": "soon"}, None),
    ],
)
async def test_a_job_of_laravel_waits_since_it_was_due(server, payload, age) -> None:
    laravel = LaravelQueue(server)
    payload = {"createdAt": time.time() - 500, **payload}
    laravel.client.rpush(laravel.key, laravel.payload(**payload))
    source = laravel.open()
    seconds = (await look(source)).oldest_seconds
    assert seconds == (None if age is None else pytest.approx(age, abs=10))
    await source.close()


async def test_names_of_laravel_are_remembered_while_their_queues_are_empty(server) -> None:
    laravel = LaravelQueue(server)
    await laravel.put(1)
    laravel.client.zadd(f"{PREFIX}queues:mail-late:delayed", {"{}": 1})
    laravel.client.zadd(f"{PREFIX}queues:mail-busy:reserved", {"{}": 1})
    laravel.client.rpush("queues:mail-of-another", "{}")
    source = laravel.open()
    names = ["mail", "mail-busy", "mail-late"]
    assert sorted(await source.names("mail*")) == names
    laravel.client.flushall()
    assert sorted(await source.names("mail*")) == names
    assert await source.names("*-late") == ["mail-late"]
    assert (await look(source)).waiting == 0
    await source.close()


@pytest.mark.parametrize("sent", ["-1e300", "1e308", "-1e12", "-1" + "0" * 400])
async def test_a_time_that_a_sender_invented_hides_no_queue(server, sent) -> None:
    laravel, sidekiq = LaravelQueue(server), SidekiqQueue(server)
    laravel.client.rpush(laravel.key, f'{{"attempts": 0, "createdAt": 1, "delay": {sent}}}')
    sidekiq.client.lpush("queue:mail", f'{{"queue": "mail", "enqueued_at": {sent}}}')
    for queue in (laravel, sidekiq):
        source = queue.open()
        [look] = (await source.look(["mail"])).values()
        assert isinstance(checked(look), SourceLook) and look.waiting == 1
        await source.close()


def test_a_prefix_of_laravel_is_never_guessed(server) -> None:
    with pytest.raises(Exception, match="prefix"):
        open_source("shop", SourceTable(kind="laravel", url=server.url))


# --- Sidekiq ------------------------------------------------------------------------------------
async def test_jobs_for_later_are_those_of_the_queue(server) -> None:
    sidekiq = SidekiqQueue(server)
    for name, queue in (("schedule", "mail"), ("schedule", "sms"), ("retry", "mail")):
        sidekiq.client.zadd(name, {sidekiq.job(queue): time.time() + 60})
    sidekiq.client.zadd("schedule", {"no job": 1})
    source = sidekiq.open()
    assert (await look(source)).delayed == 2
    sidekiq.client.zadd("retry", {sidekiq.job(): nth for nth in range(1_000)})
    assert (await look(source)).delayed is None
    await source.close()


async def test_times_of_sidekiq_8_are_in_milliseconds(server) -> None:
    sidekiq = SidekiqQueue(server, milliseconds=True)
    await sidekiq.put(1)
    source = sidekiq.open()
    age = (await look(source)).oldest_seconds
    assert age is not None
    assert age < 60
    await source.close()


async def test_counts_of_an_installation_are_reported_where_it_has_one_queue(server) -> None:
    sidekiq = SidekiqQueue(server)
    await sidekiq.put(10)
    source = sidekiq.open()
    found = await look(source)
    assert (found.arrived, found.ended) == (None, None)
    await source.close()
    source = sidekiq.open(one_queue=True)
    assert ((await look(source)).arrived, (await look(source)).ended) == (10, 0)
    # five are taken and two of them ended before the process reports it
    taken = [sidekiq.client.rpop("queue:mail").decode() for _ in range(5)]
    assert (await look(source)).arrived == 10
    sidekiq.running = taken[2:]
    sidekiq.client.incrby("stat:processed", 2)
    sidekiq.beat()
    found = await look(source)
    assert (found.claimed, found.arrived, found.ended) == (3, 10, 2)
    await sidekiq.put(4)
    assert (await look(source)).arrived == 14
    epoch = found.epoch
    sidekiq.client.set("stat:processed", 0)
    assert (await look(source)).epoch != epoch
    with pytest.raises(SourceAway, match="one_queue"):
        await source.look(["mail", "sms"])
    await source.close()


async def test_a_key_of_another_type_is_a_fault_of_that_queue(server) -> None:
    for system, key in ((LaravelQueue(server), f"{PREFIX}queues:odd"),
                        (SidekiqQueue(server), "queue:odd")):  # fmt: skip
        system.client.set(key, "x")
        await system.put(1)
        source = system.open()
        looks = await source.look(["odd", "mail"])
        assert isinstance(looks["odd"], SourceFault)
        assert "WRONGTYPE" in looks["odd"].text
        assert isinstance(looks["mail"], SourceLook)
        await source.close()
