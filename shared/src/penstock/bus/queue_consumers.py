"""Queues on NATS: a JetStream consumer each, made, paused, counted and pulled from."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence, Set
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import nats.errors

from penstock.bus import streams
from penstock.bus.protocol import BusUnavailable, Delivery, QueueDepth
from penstock.bus.pull import Inbox, delivery
from penstock.bus.wire import WireClient
from penstock.events.subjects import Subjects

log = logging.getLogger("penstock.bus")

Api = Callable[..., Awaitable[dict[str, Any]]]

_LOOK_SECONDS = 0.2
_NO_CONSUMER = 10014
_LAST_PAUSES_SECONDS = (0.05, 0.2, 1.0, 5.0)
_FIRST_WAIT_SECONDS = 0.02
_LONGEST_WAIT_SECONDS = 0.2
_MISSING_LOGGED = 300
"""One line for so many refused pulls, about a minute's."""


class QueueConsumers:
    """The consumers of queues.

    Args:
        client: the connection.
        api: requests of the JetStream API: ``await api(verb, body, fail=…)``.
        subjects: names of streams, subjects and consumers.
        inboxes: of all pulls, so that a reconnect wakes them.
        claim_seconds: how long a delivered message is its worker's, unless extended.
        request_timeout_seconds: how long a missing consumer is waited for.
        signal: publishes a message that may be lost.
        give_back: returns deliveries that came too late for their pull.

    Attributes:
        makes_consumers: whether this client makes missing consumers. With a key of its own, it asks
            the orchestrator to.
    """

    def __init__(
        self,
        client: WireClient,
        api: Api,
        subjects: Subjects,
        inboxes: set[Inbox],
        *,
        claim_seconds: float,
        request_timeout_seconds: float,
        signal: Callable[[str], Awaitable[None]],
        give_back: Callable[[Sequence[str]], None],
        makes_consumers: bool,
    ) -> None:
        self._client, self._api, self._subjects = client, api, subjects
        self._inboxes = inboxes
        self._claim_seconds, self._timeout = claim_seconds, request_timeout_seconds
        self._signal, self._give_back = signal, give_back
        self._made: set[str] = set()
        self.makes_consumers = makes_consumers

    async def ensure(self, queue: str) -> None:
        """Makes the queue's consumer if need be, or has it made."""
        if queue in self._made:
            return
        if self.makes_consumers:
            await self.make(queue)
        else:
            await self._signal(self._subjects.queue_wanted(queue))

    async def make(self, queue: str) -> None:
        """Makes the queue's consumer, even if it existed when it was last used."""
        stream = self._subjects.jobs_stream
        config = streams.consumer(self._subjects, queue, self._claim_seconds)
        await self._api(
            f"CONSUMER.DURABLE.CREATE.{stream}.{config['name']}",
            {"stream_name": stream, "config": config},
        )
        self._made.add(queue)

    def forget(self, queue: str) -> None:
        """The consumer may have been removed: it is made again at its next use."""
        self._made.discard(queue)

    # --- pulling ----------------------------------------------------------------------------------
    def puller(self, queue: str) -> QueuePuller:
        """What pulls the jobs of this queue."""
        return QueuePuller(self, queue)

    def open_inbox(self, queue: str) -> Inbox:
        """Where a puller of this queue receives its deliveries."""
        stream, name = self._subjects.jobs_stream, self._subjects.consumer(queue)
        inbox = Inbox(
            self._client,
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}",
            lambda reply: self._give_back([reply.decode()]),
        )
        self._inboxes.add(inbox)
        return inbox

    def close_inbox(self, inbox: Inbox) -> None:
        self._inboxes.discard(inbox)

    # --- pausing ----------------------------------------------------------------------------------
    async def pause(self, queue: str, paused: bool, until: datetime | None = None) -> None:
        """Has the broker deliver none of the queue's jobs (until then), or deliver them again."""
        await self.ensure(queue)
        consumer = f"{self._subjects.jobs_stream}.{self._subjects.consumer(queue)}"
        await self._exists(queue, consumer)
        if paused:
            pause_until = until.isoformat() if until else streams.PAUSED_FOR_GOOD
            await self._api(f"CONSUMER.PAUSE.{consumer}", {"pause_until": pause_until})
            return
        # A pause that is lifted wakes no pull until the next message comes; one that ends does.
        for seconds in _LAST_PAUSES_SECONDS:
            info = await self._api(f"CONSUMER.INFO.{consumer}")
            if not info.get("paused"):
                return
            end = datetime.fromisoformat(info["ts"]) + timedelta(seconds=seconds)
            await self._api(f"CONSUMER.PAUSE.{consumer}", {"pause_until": end.isoformat()})
            await asyncio.sleep(seconds)

    async def _exists(self, queue: str, consumer: str) -> None:
        """Returns when the queue has its consumer, which another process may have to make."""
        deadline = time.monotonic() + self._timeout
        while not self.makes_consumers:
            info = await self._api(f"CONSUMER.INFO.{consumer}", fail=False)
            if info.get("error", {}).get("err_code") != _NO_CONSUMER:
                return
            if time.monotonic() > deadline:
                raise BusUnavailable(
                    f"queue {queue} has no consumer; the orchestrator makes it: does one run?"
                )
            await asyncio.sleep(_LOOK_SECONDS)

    # --- all queues -------------------------------------------------------------------------------
    async def depths(self) -> dict[str, QueueDepth]:
        """How many jobs wait and are claimed, by queue."""
        infos = await self._all()
        depths = [streams.depth(info) for info in infos if info["name"].startswith("q_")]
        by_queue = {depth.queue: depth for depth in depths}
        self._made.intersection_update(by_queue)  # one that vanished is made again
        return by_queue

    async def remove_idle(self, kept: Set[str]) -> list[str]:
        """Removes consumers that no worker pulls from and that wait for no answer; jobs stay.

        Args:
            kept: queues that keep theirs.

        Returns:
            The queues whose consumers were removed.
        """
        idle = [streams.depth(info).queue for info in await self._all() if streams.is_idle(info)]
        removed = [queue for queue in idle if queue not in kept]
        for queue in removed:
            consumer = f"{self._subjects.jobs_stream}.{self._subjects.consumer(queue)}"
            await self._api(f"CONSUMER.DELETE.{consumer}", fail=False)
            self._made.discard(queue)
        return removed

    async def _all(self) -> list[dict[str, Any]]:
        """All consumers of the queues' stream, as the JetStream API describes them."""
        consumers: list[dict[str, Any]] = []
        while True:
            verb = f"CONSUMER.LIST.{self._subjects.jobs_stream}"
            page = await self._api(verb, {"offset": len(consumers)})
            infos = page.get("consumers") or []
            consumers += infos
            if not infos or len(consumers) >= page.get("total", 0):
                return consumers


class QueuePuller:
    """A queue's :class:`penstock.bus.protocol.Puller`."""

    def __init__(self, consumers: QueueConsumers, queue: str) -> None:
        self._consumers, self._queue = consumers, queue
        self._inbox = consumers.open_inbox(queue)
        self._pulls_without_consumer = 0

    async def fetch(self, batch: int, wait_seconds: float) -> list[Delivery]:
        consumers = self._consumers
        if consumers.makes_consumers:
            await consumers.ensure(self._queue)
        try:
            messages = await self._inbox.take(batch, wait_seconds)
        except nats.errors.Error as error:
            raise BusUnavailable(f"not connected to the broker: {error!r}") from error
        if not self._inbox.trouble:
            self._pulls_without_consumer = 0
        elif self._inbox.has_no_consumer and not consumers.makes_consumers:
            await self._wait_for_consumer()
        else:
            log.warning("queue %s: %s", self._queue, self._inbox.trouble)
            consumers.forget(self._queue)
            await asyncio.sleep(_LOOK_SECONDS)
        return [delivery(*message) for message in messages]

    async def _wait_for_consumer(self) -> None:
        if self._pulls_without_consumer % _MISSING_LOGGED == 0:
            log.info("queue %s has no consumer yet; the orchestrator makes it", self._queue)
        self._pulls_without_consumer += 1
        await self._consumers.ensure(self._queue)
        pause_seconds = _FIRST_WAIT_SECONDS * self._pulls_without_consumer
        await asyncio.sleep(min(pause_seconds, _LONGEST_WAIT_SECONDS))

    async def close(self) -> None:
        self._consumers.close_inbox(self._inbox)
        with suppress(nats.errors.Error, TimeoutError):
            await self._inbox.close()
