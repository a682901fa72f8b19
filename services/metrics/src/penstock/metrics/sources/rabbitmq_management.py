"""RabbitMQ by its management API: what waits, what is in work, and counters of both.

The server collects these figures every five seconds (``collect_statistics_interval``), those of
quorum queues by a tick of their own, and serves a copy that it makes every five seconds. It shows
nothing of a new queue before that.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote, unquote, urlsplit

import msgspec
from msgspec import Meta

from penstock.metrics.core.sources.growing import Counts, GrowingCounts
from penstock.metrics.core.sources.look import SourceFault, SourceLook
from penstock.metrics.sources.requests import Requests
from penstock.metrics.sources.source import SourceAway, SourceSettings

AMQP_SCHEMES = ("amqp", "amqps")
_COLUMNS = (
    "messages_ready", "messages_unacknowledged", "head_message_timestamp", "state", "type",
    "message_stats.publish", "message_stats.ack", "message_stats.deliver_no_ack",
    "message_stats.get_no_ack", "message_stats.deliver_get", "message_stats.redeliver",
)  # fmt: skip
"""Without them the answer has a part for each consumer and channel."""
_NOT_SERVED = frozenset({"crashed", "down", "minority", "stopped", "terminated"})
"""States in which the figures are those of a time before."""


class RabbitOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the address does not say.

    Attributes:
        vhost: that holds the queues; empty: of the path of an ``amqp`` address, else ``/``.
        statistics_seconds: ``collect_statistics_interval`` of the server, in seconds.
        amqp_url: of the same server over AMQP, without a password, where ``url`` is that of the
            management API: what waits is read there, as of now. Without a user it is that of
            ``url``.
    """

    vhost: Annotated[str, Meta(max_length=200)] = ""
    statistics_seconds: Annotated[float, Meta(ge=0.1, le=300)] = 5.0
    amqp_url: Annotated[str, Meta(max_length=2_000)] = ""

    def __post_init__(self) -> None:
        """Raises ValueError: no address of AMQP, or a password in it."""
        if not self.amqp_url:
            return
        try:
            address = urlsplit(self.amqp_url)
            is_amqp = address.scheme in AMQP_SCHEMES and bool(address.hostname)
            _ = address.port
        except ValueError:
            is_amqp = False
        if not is_amqp:  # not shown: it may hold a password
            raise ValueError("amqp_url: expected amqp://HOST or amqps://HOST")
        if address.password is not None:
            raise ValueError("amqp_url holds a password: name its file in secret_file")


class QueueStats(msgspec.Struct, frozen=True):
    """Counters of a queue, by the server's names."""

    publish: int = 0
    ack: int = 0
    deliver_no_ack: int = 0
    get_no_ack: int = 0
    deliver_get: int = 0
    redeliver: int = 0

    @property
    def ended(self) -> int:
        """Messages that were acknowledged, or delivered without waiting for that."""
        return self.ack + self.deliver_no_ack + self.get_no_ack


class ManagedQueue(msgspec.Struct, frozen=True):
    """A queue as the server shows it, by the server's names."""

    messages_ready: int | None = None
    messages_unacknowledged: int | None = None
    head_message_timestamp: Any = None
    state: str = ""
    type: str = ""
    message_stats: QueueStats | None = None

    @property
    def has_figures(self) -> bool:
        """A new queue has none for some seconds."""
        return self.messages_ready is not None and self.messages_unacknowledged is not None


class ManagementSource:
    """One request for each queue, over one connection."""

    def __init__(self, settings: SourceSettings) -> None:
        options: RabbitOptions = settings.options
        self._vhost = options.vhost or "/"
        path = urlsplit(settings.url).path.rstrip("/")
        self._path = f"{path}/api/queues/{quote(self._vhost, safe='')}"
        # Half of one of the two intervals. With both, a pool would count as stale by default
        # (decider.stale_seconds), and would never be scaled in.
        self._behind_seconds = options.statistics_seconds / 2
        basic = b64encode(":".join(login(settings)).encode()).decode()
        self._requests = Requests(msgspec.structs.replace(settings, secret=f"Basic {basic}"))
        self._decoder = msgspec.json.Decoder(ManagedQueue)
        self._counts: dict[str, GrowingCounts] = {}

    async def look(self, queues: Sequence[str]) -> Mapping[str, SourceLook | SourceFault]:
        return {queue: await self._look(queue) for queue in queues}

    async def close(self) -> None:
        for counts in self._counts.values():
            counts.begin_anew()  # a server that was away may have counted from zero again
        await self._requests.close()

    async def queue(self, name: str) -> ManagedQueue | SourceFault:
        """A queue as the server shows it; a fault where it shows none that can be measured.

        Raises:
            SourceAway: it does not answer as a management API.
        """
        columns = ",".join(_COLUMNS)
        body = await self._requests.find(f"{self._path}/{quote(name, safe='')}?columns={columns}")
        if body is None:
            return SourceFault(f"vhost {self._vhost!r} has no queue {name!r}")
        try:
            queue = self._decoder.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise SourceAway(f"expected a queue of the management API: {error}") from error
        fault = _fault(name, queue)
        return SourceFault(fault) if fault else queue

    async def _look(self, name: str) -> SourceLook | SourceFault:
        counts = self._counts.setdefault(name, GrowingCounts())
        queue = await self.queue(name)
        if isinstance(queue, ManagedQueue) and not queue.has_figures:
            queue = SourceFault(f"the server has no figures of queue {name!r} yet")
        if isinstance(queue, SourceFault):
            counts.begin_anew()
            return queue
        return self._figures(queue, counts)

    def _figures(self, queue: ManagedQueue, counts: GrowingCounts) -> SourceLook:
        waiting, claimed = queue.messages_ready or 0, queue.messages_unacknowledged or 0
        stats, arrived = queue.message_stats, None
        if stats is not None:
            arrived = counts.arrived(Counts(waiting + claimed, stats.publish, stats.ended))
        return SourceLook(
            waiting=waiting,
            claimed=claimed,
            oldest_seconds=oldest_seconds(queue, time.time()) if waiting else 0.0,
            arrived=arrived,
            ended=None if stats is None else stats.ended,
            epoch=str(counts.epoch),
            behind_seconds=self._behind_seconds,
            exact=False,
        )


def login(settings: SourceSettings) -> tuple[str, str]:
    """User and password; those of a new server where the settings name none."""
    user = unquote(urlsplit(settings.url).username or "")
    return (user or "guest", settings.secret) if user or settings.secret else ("guest", "guest")


def _fault(name: str, queue: ManagedQueue) -> str:
    if queue.type == "stream":
        return f"{name!r} is a stream, whose messages stay in it: its length is no backlog"
    if queue.state in _NOT_SERVED:
        return f"queue {name!r} is {queue.state}"
    return ""


def oldest_seconds(queue: ManagedQueue, now: float) -> float | None:
    """By the publisher's clock; None where it sent no time, or where it is not of one that waits.

    The head of a queue is its oldest message, be it in work; only where none is, it waits.
    """
    came = queue.head_message_timestamp
    if queue.messages_unacknowledged or type(came) is not int or not 0 < came <= now + 60:
        return None
    return max(now - came, 0.0)
