"""Kind ``rabbitmq``: queues of RabbitMQ, over AMQP, by the management API, or by both.

The scheme of the address chooses. AMQP (``amqp://``) reports at once how many messages wait, and
nothing else; the management API (``http://``) reports what is in work, too, and counts what came
and ended, some seconds late. With ``options.amqp_url`` beside the latter, what waits is of now, and
arrivals are brought up to now by it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.metrics.core.sources.depth_arrivals import DepthArrivals, DepthCounts
from penstock.metrics.core.sources.look import SourceFault, SourceLook
from penstock.metrics.sources.rabbitmq_amqp import AmqpSource, Depth
from penstock.metrics.sources.rabbitmq_management import (
    AMQP_SCHEMES,
    ManagedQueue,
    ManagementSource,
    RabbitOptions,
    oldest_seconds,
)
from penstock.metrics.sources.source import Kind, QueueSource, SourceSettings


class CombinedSource:
    """One request and one passive declaration for each queue, over a connection each."""

    def __init__(self, settings: SourceSettings) -> None:
        address = urlsplit(settings.options.amqp_url)
        vhost = settings.options.vhost or unquote(address.path.removeprefix("/"))
        options = msgspec.structs.replace(settings.options, vhost=vhost)
        user = urlsplit(settings.url).username
        if user and not address.username:
            address = address._replace(netloc=f"{user}@{address.netloc}")
        same = msgspec.structs.replace(settings, options=options)
        self._management = ManagementSource(same)
        self._amqp = AmqpSource(msgspec.structs.replace(same, url=address.geturl()))
        self._arrivals: dict[str, DepthArrivals] = {}

    async def look(self, queues: Sequence[str]) -> Mapping[str, SourceLook | SourceFault]:
        shown = {name: await self._management.queue(name) for name in queues}
        depths, now = await self._amqp.depths(queues), time.monotonic()
        return {name: self._look(name, shown[name], depths[name], now) for name in queues}

    async def close(self) -> None:
        for arrivals in self._arrivals.values():
            arrivals.begin_anew()  # a server that was away may have counted from zero again
        try:
            await self._amqp.close()
        finally:
            await self._management.close()

    def _look(
        self, name: str, queue: ManagedQueue | SourceFault, depth: Depth | SourceFault, now: float
    ) -> SourceLook | SourceFault:
        arrivals = self._arrivals.setdefault(name, DepthArrivals())
        if isinstance(queue, SourceFault):
            arrivals.begin_anew()
            return queue
        if isinstance(depth, SourceFault):
            arrivals.begin_anew()
            return depth
        stats, waiting, arrived = queue.message_stats, depth.waiting, None
        if stats is not None:
            counters = stats.publish, stats.deliver_get, stats.redeliver
            arrived = arrivals.arrived(DepthCounts(waiting, depth.consumers, *counters), now)
        return SourceLook(
            waiting=waiting,
            claimed=queue.messages_unacknowledged,
            oldest_seconds=_oldest_seconds(queue, depth),
            arrived=arrived,
            ended=None if stats is None else stats.ended,
            epoch=str(arrivals.epoch),
            exact=False,
            late_counters=True,
        )


def _oldest_seconds(queue: ManagedQueue, depth: Depth) -> float | None:
    """By the head that the server showed, where no consumer can have taken it since."""
    if not depth.waiting:
        return 0.0
    return None if depth.consumers else oldest_seconds(queue, time.time())


def _open(settings: SourceSettings) -> QueueSource:
    if _is_amqp(settings.url):
        return AmqpSource(settings)
    options: RabbitOptions = settings.options
    return CombinedSource(settings) if options.amqp_url else ManagementSource(settings)


def _is_amqp(url: str) -> bool:
    return urlsplit(url).scheme in AMQP_SCHEMES


def _mismatch(url: str, options: Any) -> str:
    if _is_amqp(url) and options.amqp_url:
        return "options.amqp_url goes with the url of the management API (http:// or https://)"
    return ""


KIND = Kind(
    open=_open,
    schemes=(*AMQP_SCHEMES, "http", "https"),
    options=RabbitOptions,
    mismatch=_mismatch,
    reports_only_waiting=_is_amqp,
)
