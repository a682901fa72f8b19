"""Kind `rabbitmq`, over AMQP, by the management API and by both, against a real server.

The messages are Kombu's, as Celery's are.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from urllib.parse import quote

import msgspec
import pytest
from tests.component.metrics.sources.rabbit_queues import (
    SHOWN_SECONDS,
    CombinedQueue,
    ManagedQueue,
    RabbitQueue,
    TakenLine,
)
from tests.rabbitmq_server import RabbitServer, rabbitmq_server
from tests.waiting import eventually

from penstock.config.sources import SourceTable
from penstock.metrics.core.sources.queue import SourceQueue
from penstock.metrics.sources import QueueSource, SourceAway, SourceFault, SourceLook
from penstock.metrics.sources.registry import open_source
from penstock.testing.sources import SourceContract

kombu = pytest.importorskip("kombu")
pytest.importorskip("aio_pika")

QUORUM = {"x-queue-type": "quorum"}
WAYS = (RabbitQueue, ManagedQueue, CombinedQueue)


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[RabbitServer]:
    with rabbitmq_server(tmp_path_factory.mktemp("rabbitmq")) as server:
        yield server


@pytest.fixture
async def amqp(server) -> AsyncIterator[RabbitQueue]:
    queue = RabbitQueue(server)
    yield queue
    queue.close()


@pytest.fixture
async def managed(server) -> AsyncIterator[ManagedQueue]:
    queue = ManagedQueue(server)
    await queue.shown()
    yield queue
    queue.close()


@pytest.fixture
async def combined(server) -> AsyncIterator[CombinedQueue]:
    queue = CombinedQueue(server)
    await queue.shown()
    yield queue
    queue.close()


class TestAmqp(SourceContract):
    @pytest.fixture
    def system(self, amqp) -> RabbitQueue:
        return amqp


class TestManagement(SourceContract):
    @pytest.fixture
    def system(self, managed) -> ManagedQueue:
        return managed


class TestBoth(SourceContract):
    @pytest.fixture
    def system(self, combined) -> CombinedQueue:
        return combined


@pytest.fixture(params=WAYS, ids=["amqp", "management", "both"])
async def system(request, server) -> AsyncIterator[RabbitQueue]:
    queue = request.param(server)
    await queue.shown()
    yield queue
    queue.close()


@pytest.fixture(params=WAYS, ids=["amqp", "management", "both"])
async def quorum(request, server) -> AsyncIterator[RabbitQueue]:
    queue = request.param(server, QUORUM)
    await queue.shown()
    yield queue
    queue.close()


async def look(source: QueueSource, system: RabbitQueue) -> SourceLook:
    figures = (await source.look([system.queue]))[system.queue]
    assert isinstance(figures, SourceLook), figures
    return figures


# --- all ways ----------------------------------------------------------------------------------
async def test_a_quorum_queue_is_counted_like_any_other(quorum) -> None:
    source = quorum.open()
    await quorum.put(5)
    await quorum.take(2)
    figures = await look(source, quorum)
    assert figures.waiting == 3
    assert figures.claimed == (2 if quorum.counts_claims else None)
    await quorum.end(2)
    assert (await look(source, quorum)).waiting == 3
    await source.close()


async def test_the_depth_is_that_of_an_oracle_at_each_look(system) -> None:
    source, chance = system.open(), random.Random(7)
    for _ in range(12):
        await system.put(chance.randint(0, 4))
        await system.take(chance.randint(0, system.waiting))
        await system.end(chance.randint(0, len(system.taken)))
        figures = await look(source, system)
        assert figures.waiting == system.waiting
        assert figures.claimed in (None, len(system.taken))
    await source.close()


async def test_a_queue_that_is_deleted_is_a_fault_until_it_is_made_again(system) -> None:
    source = system.open()
    other = system.declare("other")
    await system.put(2)
    before = await look(source, system)
    system.declare().delete()
    looks = await source.look([system.queue, "other"])
    assert isinstance(looks[system.queue], SourceFault)
    assert "mail" in looks[system.queue].text
    system.declare()
    system.waiting = 0
    await system.put(1)
    after = await look(source, system)
    assert after.waiting == 1
    assert (before.epoch != after.epoch) is system.counts_claims
    other.delete()
    await source.close()


async def test_a_thousand_looks_at_an_absent_queue_leave_one_connection(system) -> None:
    source = system.open()
    await system.put(1)
    for _ in range(1_000):
        looks = await source.look(["none-such", system.queue])
        assert isinstance(looks["none-such"], SourceFault)
    assert isinstance(looks[system.queue], SourceLook)
    # One or none: the server closes a connection of HTTP after so many requests.
    assert await system.connections() <= 1
    await source.close()
    async with asyncio.timeout(SHOWN_SECONDS):
        while await system.connections():  # noqa: ASYNC110 - the server signals nothing
            await asyncio.sleep(0.01)


async def test_the_password_is_that_of_the_file_and_is_never_shown(
    system, server, tmp_path
) -> None:
    await system.put(1)
    server.api("PUT", "/api/users/reader", {"password": "r:ght", "tags": "monitoring"})
    server.api("PUT", "/api/permissions/%2F/reader", {"configure": "", "write": "", "read": ".*"})
    secret = tmp_path / "secret"
    for password in ("wr0ng", "r:ght"):
        secret.write_text(password)
        secret.chmod(0o600)
        source = system.open(user="reader", secret_file=str(secret))
        if password == "r:ght":
            assert (await look(source, system)).waiting == 1
        else:
            with pytest.raises(SourceAway) as caught:
                await source.look([system.queue])
            assert "wr0ng" not in str(caught.value)
        await source.close()


async def test_names_with_slashes_in_another_vhost_are_read(system, server) -> None:
    server.api("PUT", "/api/vhosts/a%2Fb%20c", {})
    server.api("PUT", "/api/permissions/a%2Fb%20c/guest", dict.fromkeys(
        ("configure", "write", "read"), ".*"
    ))  # fmt: skip
    name = system.odd_name
    server.api("PUT", f"/api/queues/a%2Fb%20c/{quote(name, safe='')}", {"durable": True})
    source = system.open(vhost="a/b c")

    async def is_shown() -> bool:
        return isinstance((await source.look([name]))[name], SourceLook)

    await eventually(is_shown, SHOWN_SECONDS)
    looks = await source.look([system.queue, name])
    assert isinstance(looks[system.queue], SourceFault), "it is in another vhost"
    await source.close()
    server.api("DELETE", "/api/vhosts/a%2Fb%20c")


# --- AMQP ---------------------------------------------------------------------------------------
async def test_a_name_that_the_client_refuses_is_a_fault_of_that_queue(amqp) -> None:
    source = amqp.open()
    looks = await source.look(["mail?é", amqp.queue])
    assert looks["mail?é"] == SourceFault("the AMQP client refuses the name 'mail?é'")
    assert isinstance(looks[amqp.queue], SourceLook)
    await source.close()


async def test_the_vhost_of_an_address_is_that_of_its_path(amqp, server) -> None:
    await amqp.put(3)
    for path in ("", "/", "/%2F"):
        table = SourceTable(kind="rabbitmq", url=server.url.rstrip("/") + path)
        source = open_source("shop", table)
        assert (await look(source, amqp)).waiting == 3
        await source.close()
    source = open_source("shop", SourceTable(kind="rabbitmq", url=f"{server.url}none"))
    with pytest.raises(SourceAway):
        await source.look([amqp.queue])
    await source.close()


async def test_refused_connections_leave_none_behind(amqp) -> None:
    source = amqp.open(vhost="none-such")
    for _ in range(200):
        with pytest.raises(SourceAway):
            await source.look([amqp.queue])
        await source.close()
    await eventually(lambda: amqp.server.connections(amqp.server.port) == 1, SHOWN_SECONDS)


async def test_a_server_that_never_answers_holds_no_connection() -> None:
    """It accepts, and says nothing: a look ends by its time, and its connection with it."""
    open_connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_connections
        open_connections += 1
        with suppress(ConnectionError):
            await reader.read()
        open_connections -= 1
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as silent:
        port = silent.sockets[0].getsockname()[1]
        table = SourceTable(kind="rabbitmq", url=f"amqp://127.0.0.1:{port}", timeout_seconds=0.1)
        source = open_source("shop", table)
        for _ in range(20):
            with pytest.raises((SourceAway, TimeoutError)):
                async with asyncio.timeout(0.15):
                    await source.look(["mail"])
            await source.close()
        source = open_source("shop", msgspec.structs.replace(table, timeout_seconds=30.0))
        for _ in range(20):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await source.look(["mail"])
            await source.close()
        await eventually(lambda: open_connections == 0, SHOWN_SECONDS)


async def test_a_queue_of_another_connection_alone_is_a_fault(amqp) -> None:
    own = kombu.Queue("own", exclusive=True)(amqp.connection.default_channel)
    own.declare()
    source = amqp.open()
    looks = await source.look(["own", amqp.queue])
    assert isinstance(looks["own"], SourceFault)
    assert isinstance(looks[amqp.queue], SourceLook)
    own.delete()
    await source.close()


# --- management ---------------------------------------------------------------------------------
async def test_what_came_and_ended_is_counted_and_begins_anew_with_the_server(managed) -> None:
    source = managed.open()
    await managed.put(1)
    await _counted(managed, publish=1)
    first = await look(source, managed)
    await managed.put(9)
    await managed.take(6)
    await managed.end(4)
    await _counted(managed, publish=10, ack=4)
    figures = await look(source, managed)
    assert (figures.arrived, figures.ended) == ((first.arrived or 0) + 9, 4)
    assert figures.epoch == first.epoch
    assert figures.behind_seconds == 2.5

    await managed.stop()
    with pytest.raises(SourceAway):
        await source.look([managed.queue])
    await source.close()
    managed.taken.clear()
    await managed.start()
    await managed.put(2)
    await _counted(managed, publish=2)
    after = await look(source, managed)
    assert after.waiting == 8, "what was in work is back"
    assert after.epoch != figures.epoch
    await source.close()


async def test_what_is_dead_lettered_into_a_queue_arrives_there(managed) -> None:
    source = managed.open()
    await managed.put(1)
    await _counted(managed, publish=1)
    first = await look(source, managed)
    arguments = {
        "x-message-ttl": 1, "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": managed.queue,
    }  # fmt: skip
    later = kombu.Queue("later", durable=True, queue_arguments=arguments)
    later(managed.connection.default_channel).declare()
    managed.publish(5, "later")
    managed.waiting = 6
    await managed.shown()
    figures = await look(source, managed)
    assert (figures.arrived or 0) - (first.arrived or 0) == 5
    later(managed.connection.default_channel).delete()
    await source.close()


async def test_the_age_is_that_of_a_head_that_waits(managed) -> None:
    source = managed.open()
    sent_at = int(time.time()) - 60
    managed.publish(2, timestamp=sent_at)
    managed.waiting = 2
    await managed.shown()
    oldest = (await look(source, managed)).oldest_seconds
    assert oldest is not None
    assert abs(oldest - (time.time() - sent_at)) < 5
    await managed.take(1)
    assert (await look(source, managed)).oldest_seconds is None, "the head may be the one in work"
    await source.close()


async def test_a_stream_is_a_fault(managed, server) -> None:
    arguments = {"x-queue-type": "stream"}
    server.api("PUT", "/api/queues/%2F/log", {"durable": True, "arguments": arguments})
    source = managed.open()
    [fault] = (await source.look(["log"])).values()
    assert isinstance(fault, SourceFault)
    assert "stream" in fault.text
    server.api("DELETE", "/api/queues/%2F/log")
    await source.close()


async def _counted(managed: ManagedQueue, **counts: int) -> None:
    """Waits until the server's counters are these."""

    def are_shown() -> bool:
        stats = managed.server.queue(managed.queue).get("message_stats", {})
        return all(stats.get(name) == count for name, count in counts.items())

    await eventually(are_shown, SHOWN_SECONDS, f"counters {counts}")


# --- both ----------------------------------------------------------------------------------------
async def test_the_depth_is_of_now_before_the_management_api_shows_it(combined) -> None:
    source = combined.open()
    first = await look(source, combined)
    combined.publish(7)
    await eventually(lambda: combined.ready() == 7, SHOWN_SECONDS, "all are stored")
    figures = await look(source, combined)
    assert (figures.waiting, figures.behind_seconds) == (7, 0.0)
    assert (figures.exact, figures.late_counters) == (False, True)
    assert figures.arrived in (None, (first.arrived or 0) + 7)
    await source.close()


async def test_a_queue_without_figures_yet_is_measured_by_its_depth(combined, server) -> None:
    source = combined.open()
    combined.declare("new")
    combined.publish(3, "new")
    looks = await source.look(["new"])
    assert looks["new"].waiting <= 3, "no fault"
    combined.declare("new").delete()
    await source.close()


async def test_the_vhost_is_that_of_the_amqp_url_on_both_sides(combined, server) -> None:
    server.api("PUT", "/api/vhosts/else", {})
    everything = dict.fromkeys(("configure", "write", "read"), ".*")
    server.api("PUT", "/api/permissions/else/guest", everything)
    server.api("PUT", "/api/queues/else/mail", {"durable": True})
    source = combined.open(amqp_url=f"{server.url}else")

    async def is_shown() -> bool:
        return isinstance((await source.look(["mail"]))["mail"], SourceLook)

    await eventually(is_shown, SHOWN_SECONDS)
    assert isinstance((await source.look([combined.queue]))[combined.queue], SourceFault)
    await source.close()
    server.api("DELETE", "/api/vhosts/else")


async def test_depth_and_age_of_a_burst_are_those_of_an_oracle(combined) -> None:
    """Twenty messages a second for five seconds; consumers join one by one while they wait."""
    source, queue = combined.open(), SourceQueue(combined.queue, 5.0)
    wrong, oldest = [], 0.0
    async with TakenLine(combined, run_seconds=0.25) as line:
        for step in range(48):
            if 4 <= step < 24:
                await line.send(5)
            if 16 <= step < 22:
                await line.join()
            await asyncio.sleep(0.25)
            most, age = line.sent - line.delivered, line.age_seconds
            figures = await look(source, combined)
            now, wall_now = time.monotonic(), time.time()
            assert line.sent - line.delivered - line.consumers <= figures.waiting <= most
            queue.see_source(figures, now, wall_now, 0, None)
            estimate = queue.oldest_seconds(wall_now) or 0.0
            if figures.waiting:
                assert "waiting" not in queue.estimated
                wrong.append(abs(estimate - age) > max(1.0, 0.1 * age))
                oldest = max(oldest, age)
    assert oldest > 3.0, "there was a line worth its name"
    assert sum(wrong) <= 0.1 * len(wrong)
    await source.close()
