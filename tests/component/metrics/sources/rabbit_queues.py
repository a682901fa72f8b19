"""A queue of RabbitMQ with its producer and consumer, as the tests of its source drive it."""

from __future__ import annotations

import asyncio
import time
from itertools import count
from typing import Any

import pytest
from tests.rabbitmq_server import RabbitServer
from tests.waiting import eventually

from penstock.config.sources import SourceTable
from penstock.metrics.sources import QueueSource
from penstock.metrics.sources.registry import open_source

aio_pika = pytest.importorskip("aio_pika")
kombu = pytest.importorskip("kombu")

SHOWN_SECONDS = 30.0
"""The management API shows what there is so late at most."""
_numbers = count()


class RabbitQueue:
    """A queue, its producer and its consumer."""

    absent, knows_age, counts_claims = "none-such", False, False
    is_now = True
    """A look shows the depth as of now."""
    odd_name = "mail/to day"

    def __init__(self, server: RabbitServer, arguments: dict[str, Any] | None = None) -> None:
        self.server = server
        # The server remembers the counters of a queue that was deleted, by its name.
        self.queue = f"mail-{next(_numbers)}"
        self._arguments = arguments or {}
        self.taken: list[Any] = []
        self.waiting = 0
        self.connect()
        self.declare()

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def options(self) -> dict[str, Any]:
        return {}

    def open(self, user: str = "", secret_file: str = "", **options: Any) -> QueueSource:
        url = self.url.replace("://", f"://{user}@") if user else self.url
        more = {**self.options, **options}
        table = SourceTable(kind="rabbitmq", url=url, secret_file=secret_file, options=more)
        return open_source("shop", table)

    def connect(self) -> None:
        self.connection = kombu.Connection(self.server.url)
        self.connection.connect()

    def declare(self, name: str = "") -> Any:
        queue = kombu.Queue(name or self.queue, durable=True, queue_arguments=self._arguments)
        bound = queue(self.connection.default_channel)
        bound.declare()
        return bound

    def publish(self, messages: int = 1, queue: str = "", **message: Any) -> None:
        with self.connection.Producer() as producer:
            for _ in range(messages):
                producer.publish(
                    "body", routing_key=queue or self.queue, delivery_mode=2, **message
                )

    async def shown(self) -> None:
        """Waits for the server's own figures to be those of now."""

    async def put(self, count: int) -> None:
        self.publish(count)
        self.waiting += count
        await eventually(lambda: self.ready() == self.waiting, SHOWN_SECONDS, "all are stored")
        await self.shown()

    def ready(self) -> int:
        """By the server's own answer to its consumer."""
        depth = self.declare().queue_declare(passive=True).message_count
        assert isinstance(depth, int)
        return depth

    async def take(self, count: int) -> None:
        queue = self.declare()
        for _ in range(count):
            message = queue.get(no_ack=False)
            assert message is not None
            self.taken.append(message)
        self.waiting -= count
        await self.shown()

    async def end(self, count: int) -> None:
        for _ in range(count):
            self.taken.pop(0).ack()
        await self.shown()

    async def stop(self) -> None:
        self.server.kill()

    async def start(self) -> None:
        self.server.start()
        self.connect()
        self.waiting = self.ready()
        await self.shown()

    def close(self) -> None:
        self.declare().delete()
        self.connection.release()

    async def connections(self) -> int:
        return self.server.connections(self.server.port) - 1  # its own


class ManagedQueue(RabbitQueue):
    """The same queue, by the management API, which is behind."""

    counts_claims, is_now = True, False
    odd_name = "mail/to day?é"

    @property
    def url(self) -> str:
        return self.server.management_url

    async def shown(self) -> None:
        def is_current() -> bool:
            figures = self.server.queue(self.queue)
            shown = figures.get("messages_ready"), figures.get("messages_unacknowledged")
            return shown == (self.waiting, len(self.taken))

        await eventually(is_current, SHOWN_SECONDS, "the management API shows what there is")

    async def connections(self) -> int:
        return self.server.connections(self.server.management_port)


class CombinedQueue(ManagedQueue):
    """The same queue, by both: what waits is of now, the rest is behind."""

    is_now = True
    odd_name = RabbitQueue.odd_name

    @property
    def options(self) -> dict[str, Any]:
        return {"amqp_url": self.server.url}

    async def connections(self) -> int:
        """Of the server's two ports, the one with more."""
        return max(await super().connections(), self.server.connections(self.server.port) - 1)


class TakenLine:
    """What publishers send to a queue and its consumers take, in order, message by message.

    Attributes:
        sent: messages that the server confirmed.
        delivered: messages that consumers began with.
        consumers: each has one message at a time.
    """

    def __init__(self, queue: RabbitQueue, run_seconds: float) -> None:
        self._queue, self._run_seconds = queue, run_seconds
        self._sent_at: list[float] = []
        self.delivered = self.consumers = 0

    async def __aenter__(self) -> TakenLine:
        self._connection = await aio_pika.connect(self._queue.server.url)
        self._channel = await self._connection.channel()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._connection.close()

    @property
    def sent(self) -> int:
        return len(self._sent_at)

    @property
    def age_seconds(self) -> float:
        """Of the oldest message that no consumer has begun with."""
        if self.delivered >= self.sent:
            return 0.0
        return time.monotonic() - self._sent_at[self.delivered]

    async def send(self, messages: int) -> None:
        for _ in range(messages):
            message = aio_pika.Message(b"body")
            await self._channel.default_exchange.publish(message, self._queue.queue)
            self._sent_at.append(time.monotonic())

    async def join(self) -> None:
        """One more consumer."""
        channel = await self._connection.channel()
        await channel.set_qos(prefetch_count=1)
        queue = await channel.get_queue(self._queue.queue)
        self.consumers += 1
        await queue.consume(self._run)

    async def _run(self, message: Any) -> None:
        self.delivered += 1
        await asyncio.sleep(self._run_seconds)
        await message.ack()
