"""Queues of RabbitMQ over AMQP: what waits now, and how many consumers there are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.config.extras import needed
from penstock.metrics.core.sources.look import SourceFault, SourceLook
from penstock.metrics.sources.bounded_reader import BoundedReader
from penstock.metrics.sources.rabbitmq_management import login
from penstock.metrics.sources.source import SourceAway, SourceSettings

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractConnection
    from yarl import URL

_MOST_BYTES = 1_000_000
"""Of what comes for one queue, some forty bytes; aiormq takes frames of any size."""


class Depth(msgspec.Struct, frozen=True):
    """A queue now.

    Attributes:
        waiting: messages that wait.
        consumers: that are connected.
    """

    waiting: int
    consumers: int


class AmqpSource:
    """One passive declaration for each queue, over one channel of one connection."""

    def __init__(self, settings: SourceSettings) -> None:
        with needed("rabbitmq", f"sources.{settings.name}: amqp://", "penstock-metrics"):
            import aio_pika  # noqa: PLC0415 - an extra
        self._pika = aio_pika
        self._settings = settings
        for library in ("aio_pika", "aiormq"):
            # They log each failed connection as an error; the looker logs a fault once.
            logging.getLogger(library).setLevel(logging.CRITICAL)
        self._connecting: asyncio.Task[AbstractConnection] | None = None
        self._channel: AbstractChannel | None = None
        self._transport = _Transport()

    async def look(self, queues: Sequence[str]) -> Mapping[str, SourceLook | SourceFault]:
        depths = await self.depths(queues)
        return {
            queue: SourceLook(waiting=depth.waiting) if isinstance(depth, Depth) else depth
            for queue, depth in depths.items()
        }

    async def depths(self, queues: Sequence[str]) -> Mapping[str, Depth | SourceFault]:
        """As `look`, with the consumers."""
        try:
            self._connecting = self._connecting or asyncio.ensure_future(self._connect())
            connection = await asyncio.shield(self._connecting)
            return {queue: await self._depth(connection, queue) for queue in queues}
        except (self._pika.exceptions.AMQPError, OSError) as error:
            text = self._transport.refusal or self._settings.shown(error)
            raise SourceAway(text) from error
        except SourceAway:
            raise
        except Exception as error:  # whatever decoding raises of what is no answer
            raise SourceAway(f"expected AMQP 0-9-1: {type(error).__name__}") from error

    async def close(self) -> None:
        connecting, self._connecting, self._channel = self._connecting, None, None
        if connecting is None:
            return
        connecting.cancel()
        await asyncio.wait([connecting])
        if not connecting.cancelled() and connecting.exception() is None:
            with suppress(self._pika.exceptions.AMQPError, OSError):
                await connecting.result().close()

    async def _depth(self, connection: AbstractConnection, queue: str) -> Depth | SourceFault:
        self._transport.begin()
        if self._channel is None:
            self._channel = await connection.channel(publisher_confirms=False)
        try:
            declared = await self._channel.declare_queue(queue, passive=True)
        except self._pika.exceptions.ChannelClosed as error:
            # The server ends the channel over one queue; the others need another one.
            self._channel = None
            if connection.is_closed:
                raise
            return SourceFault(self._settings.shown(error))
        except ValueError:  # of pamqp, which takes fewer characters than RabbitMQ does
            return SourceFault(f"the AMQP client refuses the name {queue[:100]!r}")
        result = declared.declaration_result
        return Depth(result.message_count or 0, result.consumer_count or 0)

    async def _connect(self) -> AbstractConnection:
        settings = self._settings
        address = urlsplit(settings.url)
        user, password = login(settings)
        is_tls = address.scheme == "amqps"
        return await self._pika.connect(
            host=address.hostname or "localhost",
            port=address.port or (5671 if is_tls else 5672),
            login=user,
            password=password,
            virtualhost=settings.options.vhost or unquote(address.path.removeprefix("/")) or "/",
            ssl=is_tls,
            timeout=settings.timeout_seconds,
            client_properties={"connection_name": "penstock-metrics"},
            connection_class=self._bounded,
        )

    def _bounded(self, *args: Any, **options: Any) -> AbstractConnection:
        connection = self._pika.Connection(*args, **options)
        connection.kwargs["transport_factory"] = self._transport
        return connection


class _Transport:
    """Makes connections as aiormq does, of which no more is read than a queue may need."""

    def __init__(self) -> None:
        self._reader: BoundedReader | None = None

    @property
    def refusal(self) -> str:
        """Why no more is read; empty where nothing was refused."""
        return self._reader.refusal if self._reader else ""

    def begin(self) -> None:
        """Another queue is looked at."""
        if self._reader:
            self._reader.begin()

    async def create(self, url: URL, **options: Any) -> tuple[BoundedReader, asyncio.StreamWriter]:
        """As aiormq's transports; called by it."""
        from aiormq import connection as amqp  # noqa: PLC0415 - an extra

        usual = amqp.TLSTransportFactory if url.scheme == "amqps" else amqp.TCPTransportFactory
        reader, writer = await usual().create(url, **options)
        self._reader = BoundedReader(reader, _MOST_BYTES)
        return self._reader, writer
