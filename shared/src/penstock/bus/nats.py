"""The bus over NATS JetStream."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence, Set
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import nats.errors

from penstock.bus import access, clock, ending, streams
from penstock.bus.connection import Connection
from penstock.bus.nkeys import HEARD
from penstock.bus.protocol import (
    BusError,
    BusRefused,
    BusUnavailable,
    Delivery,
    Extent,
    NotLetIn,
    Outgoing,
    QueueDepth,
    StorageTooSmall,
    Stored,
    Subscription,
)
from penstock.bus.pull import Inbox
from penstock.bus.puller import NatsPuller
from penstock.bus.reading import Reader
from penstock.bus.wire import frame
from penstock.config import Settings
from penstock.config.masking import masked

log = logging.getLogger("penstock.bus")

_HEARD = f"{HEARD}."
_ASK_AGAIN_SECONDS = 0.2
_ALREADY_EXISTS = 10058
_NO_STREAM = 10059
_NO_CONSUMER = 10014
_NO_STORAGE = 10047
_NO_MESSAGE = {10037, 10057}
"""There is no such message; it could not be deleted, since it went meanwhile."""
_FAR = "2200-01-01T00:00:00Z"
_MOMENTS_SECONDS = (0.05, 0.2, 1.0, 5.0)


async def connect(
    settings: Settings, name: str = "penstock", *, makes_streams: bool = False
) -> NatsBus:
    """A bus, connected, with the installation's streams in place.

    Args:
        makes_streams: its key, if it has one, may make streams: each is looked for.

    Raises:
        NotLetIn: the broker refuses the credentials, for ``nats.connect_timeout_seconds``.
        BusUnavailable: no broker within ``nats.connect_timeout_seconds``.
        BusRefused: the broker cannot keep the streams.
        ConfigError: ``nats.url`` names no server.
    """
    bus = NatsBus(settings, makes_streams)
    try:
        await ending.in_time(settings.nats.connect_timeout_seconds, bus.open(name))
    except TimeoutError:
        await bus.close()
        url, seconds = masked(settings.nats.url), settings.nats.connect_timeout_seconds
        if bus.is_refused:
            raise NotLetIn(f"NATS at {url}, for {seconds:g} s: {bus.trouble}") from None
        first = access.TLS_FIRST if settings.nats.ca_file else ""
        raise BusUnavailable(
            f"NATS at {url}, after {seconds:g} s: {bus.trouble}"
            if bus.trouble
            else f"no NATS server answered at {url} within {seconds:g} s; "
            f"start one, or set nats.url{first}"
        ) from None
    except BaseException:
        await bus.close()
        raise
    return bus


class NatsBus(Connection):
    """See :class:`penstock.bus.protocol.Bus`; one connection, one process."""

    def __init__(self, settings: Settings, makes_streams: bool = False) -> None:
        super().__init__(settings)
        self._timing: asyncio.Task[None] | None = None
        self._queues: set[str] = set()
        self._handlers: set[asyncio.Future[Any]] = set()
        self._updating = asyncio.Lock()
        # With a key, this client has an account of its own: it hears others under a prefix, and
        # the orchestrator alone may make consumers of queues.
        self.makes_queues = not self.has_account
        self._asks_for_all = makes_streams or not self.has_account
        self._reader = Reader(self._client, self._api, self._inboxes, self._timeout, self._refusals)
        self.makes_consumers = not self.has_account

    async def open(self, name: str) -> None:
        """Connects, and returns when the installation's streams are there."""
        await super().open(name)
        await self._ensure_patiently()
        ask = partial(self._api, f"STREAM.INFO.{self.subjects.events_stream}")
        self._timing = asyncio.create_task(clock.keep(ask), name="broker's clock")

    async def _ensure_patiently(self) -> None:
        """Until the broker answers; how long that may take is :func:`connect`'s to say."""
        while True:
            try:
                return await self._ensure_streams()
            except BusUnavailable as error:
                self.trouble = str(error)
                log.info("%s; asking again", error)
                await asyncio.sleep(_ASK_AGAIN_SECONDS)

    async def _ensure_streams(self) -> None:
        """Makes what is missing. Most roles may not: they wait for one that may."""
        replicas = self._settings.streams.replicas
        wanted = streams.streams(self._settings, self.subjects)
        missing = await self.missing_streams()
        if missing and not self._asks_for_all:
            missing = [config["name"] for config in wanted]  # it may not ask for the others
        for config in wanted:
            if config["name"] in missing:
                await self._make_stream(streams.complete(config, replicas))

    async def _make_stream(self, config: dict[str, Any]) -> None:
        error = (await self._create_stream(config)).get("error")
        if error and error.get("err_code") == _NO_STORAGE:
            raise StorageTooSmall(config["name"], config.get("max_bytes", 0))
        if error and error.get("err_code") != _ALREADY_EXISTS:
            raise BusRefused(f"stream {config['name']} cannot be made: {error.get('description')}")

    async def _create_stream(self, config: dict[str, Any]) -> dict[str, Any]:
        """Who may not is not answered, only told at once that a permission was violated."""
        if not self._may_not_make:
            with suppress(access.NotPermitted):
                return await self._api(f"STREAM.CREATE.{config['name']}", config, fail=False)
        raise BusUnavailable(
            f"there is no stream {config['name']} yet, and this role may not make it: "
            "the orchestrator does, when it starts"
        )

    async def update_streams(self, extra_bytes: int = 0) -> dict[str, dict[str, Any]]:
        """Has streams that exist take over what changed in the settings.

        Args:
            extra_bytes: what the event log may hold beyond its bound.

        Returns:
            What was changed, by the stream's name.

        Raises:
            BusError: the broker did not answer, or did not accept a change.
            NotPermitted: this key may not update streams.
        """
        updated: dict[str, dict[str, Any]] = {}
        async with self._updating:  # an update holds the whole configuration
            for stream in streams.streams(self._settings, self.subjects, extra_bytes):
                name = stream["name"]
                info = await self._api(f"STREAM.INFO.{name}")
                stored, complete = info["config"], streams.complete(stream, 1)
                if changes := streams.changes(stored, complete, info["state"]["bytes"]):
                    await self._api(f"STREAM.UPDATE.{name}", {**stored, **changes})
                    updated[name] = changes
        return updated

    async def close(self) -> None:
        if self._timing is not None:
            self._timing.cancel()
        await super().close()

    # --- how the broker is -----------------------------------------------------------------------
    async def stream_states(self) -> list[dict[str, Any]]:
        """Configuration and state of all streams that may be seen, as the JetStream API has it."""
        found: list[dict[str, Any]] = []
        while True:
            page = await self._api("STREAM.LIST", {"offset": len(found)})
            streams = page.get("streams") or []
            found += streams
            if not streams or len(found) >= page.get("total", 0):
                return found

    async def missing_streams(self) -> list[str]:
        """The streams that the broker lacks, of those that this client looks for.

        With a key that makes no streams that is the event log alone, which is made last: each role
        may ask for it, and of other streams only for those that it reads.

        Raises:
            BusError
        """
        names = [stream["name"] for stream in streams.streams(self._settings, self.subjects)]
        if not self._asks_for_all:
            names = [self.subjects.events_stream]
        answers = [await self._api(f"STREAM.INFO.{name}", fail=False) for name in names]
        codes = [answer.get("error", {}).get("err_code") for answer in answers]
        return [name for name, code in zip(names, codes, strict=True) if code == _NO_STREAM]

    async def account(self) -> dict[str, Any]:
        """What the account uses and may use, as the JetStream API has it."""
        return await self._api("INFO")

    # --- storing and reading ----------------------------------------------------------------------
    async def append(self, message: Outgoing) -> int:
        return await self._publisher.append(message)

    async def append_many(self, messages: Sequence[Outgoing]) -> list[int | BusError]:
        return await self._publisher.append_many(messages)

    async def append_atomic(self, messages: Sequence[Outgoing]) -> int:
        return await self._publisher.append_atomic(messages)

    async def last(self, stream: str, subject: str) -> Stored | None:
        return await self._reader.last(stream, subject)

    async def next(self, stream: str, subject: str, sequence: int) -> Stored | None:
        return await self._reader.next(stream, subject, sequence)

    async def history(
        self, stream: str, subject: str, limit: int = 1000, start: int = 1
    ) -> list[Stored]:
        return await self._reader.history(stream, subject, limit, start)

    async def count(self, stream: str, subject: str) -> dict[str, int]:
        return await self._reader.count(stream, subject)

    async def adapt_streams(self, extra_bytes: int = 0) -> None:
        try:
            await self.update_streams(extra_bytes)
        except access.NotPermitted:
            raise BusRefused("this key may not update streams: make its keys anew") from None

    async def extent(self, stream: str) -> Extent:
        return await self._reader.extent(stream)

    async def remove(self, stream: str, subject: str, before: int = 0) -> None:
        bound = {"seq": before} if before else {}
        await self._api(f"STREAM.PURGE.{stream}", {"filter": subject, **bound})

    async def raw_page(
        self, stream: str, subject: str, limit: int, start: int
    ) -> list[tuple[Stored, bytes | None]]:
        """As :meth:`history`, with the header block, where the broker's own headers stand too."""
        return await self._reader.raw_page(stream, subject, limit, start)

    async def remove_message(self, stream: str, sequence: int) -> None:
        """Deletes one message; nothing happens if it is not there. Raises BusError."""
        answer = await self._api(
            f"STREAM.MSG.DELETE.{stream}", {"seq": sequence, "no_erase": True}, fail=False
        )
        error = answer.get("error") or {}
        if error and error.get("err_code") not in _NO_MESSAGE:
            raise BusRefused(f"message {sequence} of {stream}: {error.get('description')}")

    @property
    def makes_consumers(self) -> bool:
        """Whether followers have consumers, which with keys only services may make."""
        return self._reader.makes_consumers

    @makes_consumers.setter
    def makes_consumers(self, value: bool) -> None:
        self._reader.makes_consumers = value

    def follow(
        self, stream: str, subjects: Sequence[str], start: str | int = "new"
    ) -> AsyncIterator[Stored]:
        return self._reader.follow(stream, subjects, start)

    # --- queues -----------------------------------------------------------------------------------
    async def ensure_queue(self, queue: str) -> None:
        if queue in self._queues:
            return
        if self.makes_queues:
            await self.make_queue(queue)
        else:
            await self.signal(self.subjects.queue_wanted(queue))

    async def make_queue(self, queue: str) -> None:
        """Makes the queue's consumer, even if it was there when it was last looked at."""
        stream = self.subjects.jobs_stream
        config = streams.consumer(self.subjects, queue, self._settings.jobs.claim_seconds)
        await self._api(
            f"CONSUMER.DURABLE.CREATE.{stream}.{config['name']}",
            {"stream_name": stream, "config": config},
        )
        self._queues.add(queue)

    def puller(self, queue: str) -> NatsPuller:
        return NatsPuller(self, queue)

    def queue_inbox(self, queue: str) -> Inbox:
        """Where a puller of this queue gets its deliveries."""
        stream, name = self.subjects.jobs_stream, self.subjects.consumer(queue)
        inbox = Inbox(
            self._client,
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}",
            lambda reply: self._soon(self.give_back([reply.decode()])),
        )
        self._inboxes.add(inbox)
        return inbox

    def forget_inbox(self, inbox: Inbox) -> None:
        self._inboxes.discard(inbox)

    def forget_queue(self, queue: str) -> None:
        """Its consumer may be gone: it is made again at the next use."""
        self._queues.discard(queue)

    async def pause_queue(self, queue: str, paused: bool) -> None:
        await self.ensure_queue(queue)
        place = f"{self.subjects.jobs_stream}.{self.subjects.consumer(queue)}"
        await self._made(queue, place)
        if paused:
            await self._api(f"CONSUMER.PAUSE.{place}", {"pause_until": _FAR})
            return
        # A pause that is lifted wakes nobody until the next message comes; one that ends does.
        for moment in _MOMENTS_SECONDS:
            info = await self._api(f"CONSUMER.INFO.{place}")
            if not info.get("paused"):
                return
            ends = datetime.fromisoformat(info["ts"]) + timedelta(seconds=moment)
            await self._api(f"CONSUMER.PAUSE.{place}", {"pause_until": ends.isoformat()})
            await asyncio.sleep(moment)

    async def _made(self, queue: str, place: str) -> None:
        """Returns when the queue has its consumer; another process may have to make it."""
        deadline = time.monotonic() + self._timeout
        while not self.makes_queues:
            info = await self._api(f"CONSUMER.INFO.{place}", fail=False)
            if info.get("error", {}).get("err_code") != _NO_CONSUMER:
                return
            if time.monotonic() > deadline:
                raise BusUnavailable(
                    f"queue {queue} has no consumer; the orchestrator makes it: does one run?"
                )
            await asyncio.sleep(_ASK_AGAIN_SECONDS)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        await self._answer([d.ack_subject for d in deliveries], b"+ACK")

    async def give_back(self, ack_subjects: Sequence[str]) -> None:
        await self._answer(ack_subjects, b"-NAK")

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        await self._answer([d.ack_subject for d in deliveries], b"+WPI")

    async def _answer(self, subjects: Sequence[str], body: bytes) -> None:
        if subjects:
            await self._client.send(
                b"".join(b"PUB %b 4\r\n%b\r\n" % (subject.encode(), body) for subject in subjects)
            )

    async def remove_idle_queues(self, kept: Set[str]) -> list[str]:
        """Removes consumers that no worker pulls from and that wait for no answer; jobs stay.

        Args:
            kept: queues that keep theirs.

        Returns:
            The queues whose consumers were removed.
        """
        stream, idle, seen = self.subjects.jobs_stream, [], 0
        while True:
            page = await self._api(f"CONSUMER.LIST.{stream}", {"offset": seen})
            consumers = page.get("consumers") or []
            seen += len(consumers)
            idle += [streams.depth(info).queue for info in consumers if streams.is_idle(info)]
            if not consumers or seen >= page.get("total", 0):
                break
        removed = [queue for queue in idle if queue not in kept]
        for queue in removed:
            place = f"{stream}.{self.subjects.consumer(queue)}"
            await self._api(f"CONSUMER.DELETE.{place}", fail=False)
            self._queues.discard(queue)
        return removed

    async def depths(self) -> dict[str, QueueDepth]:
        stream, found, seen = self.subjects.jobs_stream, {}, 0
        while True:
            page = await self._api(f"CONSUMER.LIST.{stream}", {"offset": seen})
            consumers = page.get("consumers") or []
            seen += len(consumers)
            for info in consumers:
                if info["name"].startswith("q_"):
                    depth = streams.depth(info)
                    found[depth.queue] = depth
            if not consumers or seen >= page.get("total", 0):
                self._queues.intersection_update(found)  # one that vanished is made again
                return found

    # --- signals ----------------------------------------------------------------------------------
    async def signal(self, subject: str, body: bytes = b"") -> None:
        with suppress(nats.errors.Error):
            await self._client.send(frame(Outgoing(subject, body), b""))

    async def listen(
        self,
        subject: str,
        handler: Callable[[str, bytes], Awaitable[None] | None],
        at_most: int = 0,
    ) -> Subscription:
        def on(found: str, _: bytes, body: bytes, __: bytes | None) -> None:
            if at_most and listening.heard >= at_most:
                return
            listening.heard += 1
            try:
                result = handler(found.removeprefix(_HEARD), body)
            except Exception:
                log.exception("handler of %s failed", subject)
                return
            if result is not None:
                self._soon(result)

        listening = _Listening()
        sources = (subject, f"{_HEARD}{subject}") if self.has_account else (subject,)
        for source in sources:
            subscription = await self._client.subscribe_raw(source, on)
            listening.subscriptions.append(subscription)
            if at_most:
                await subscription.unsubscribe(limit=at_most)
        return listening

    def _soon(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._handlers.add(task)
        task.add_done_callback(self._handled)

    def _handled(self, task: asyncio.Future[Any]) -> None:
        self._handlers.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("handler failed: %r", error, exc_info=error)


class _Listening:
    """What is heard from processes with the same key, and from those with others."""

    def __init__(self) -> None:
        self.subscriptions: list[Any] = []
        self.heard = 0

    async def unsubscribe(self) -> None:
        for subscription in self.subscriptions:
            with suppress(nats.errors.Error):
                await subscription.unsubscribe()
