"""A queue of RabbitMQ with its producer and consumer, as the tests of its source drive it."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from tests.rabbitmq_server import RabbitServer
from tests.waiting import eventually

from penstock.config.sources import SourceTable
from penstock.metrics.sources import QueueSource
from penstock.metrics.sources.registry import open_source

kombu = pytest.importorskip("kombu")

SHOWN_SECONDS = 30.0
"""The management API shows what there is so late at most."""
_numbers = count()


class RabbitQueue:
    """A queue, its producer and its consumer."""

    absent, knows_age, counts_claims = "none-such", False, False

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

    def open(self, **options: Any) -> QueueSource:
        return open_source("shop", SourceTable(kind="rabbitmq", url=self.url, options=options))

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

    counts_claims = True

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
