"""The bus over NATS JetStream."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import nats.errors

from penstock.bus import access, clock, ending, streams
from penstock.bus.connection import Connection
from penstock.bus.nkeys import IMPORT_PREFIX
from penstock.bus.protocol import (
    BusError,
    BusRefused,
    BusUnavailable,
    Delivery,
    NotLetIn,
    Outgoing,
    StorageTooSmall,
    Subscription,
)
from penstock.bus.queue_consumers import QueueConsumers
from penstock.bus.reading import Reader
from penstock.config import Settings
from penstock.config.masking import masked

log = logging.getLogger("penstock.bus")

_FROM_OTHERS = f"{IMPORT_PREFIX}."
_RETRY_SECONDS = 0.2
_ALREADY_EXISTS = 10058
_NO_STREAM = 10059
_NO_STORAGE = 10047
_NO_MESSAGE = {10037, 10043, 10057}
"""The message does not exist; it was removed meanwhile."""


async def connect(
    settings: Settings, name: str = "penstock", *, makes_streams: bool = False
) -> NatsBus:
    """A bus, connected, with the installation's streams in place.

    Args:
        settings: of this installation.
        name: of the connection, for people.
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
    """See :class:`penstock.bus.protocol.Bus`; one connection, one process.

    Args:
        settings: of this installation.
        makes_streams: its key, if it has one, may make streams.

    Attributes:
        reader: reads streams; its methods are the bus's own.
        queues: the consumers of queues.
    """

    def __init__(self, settings: Settings, makes_streams: bool = False) -> None:
        super().__init__(settings)
        self._clock_task: asyncio.Task[None] | None = None
        self._handlers: set[asyncio.Future[Any]] = set()
        self._updating = asyncio.Lock()
        # A client with a key has an account of its own: it receives the messages of others under
        # a prefix, and only the orchestrator may make consumers of queues.
        self._looks_for_all = makes_streams or not self.has_account
        self.reader = Reader(self._client, self._api, self._inboxes, self._timeout, self._refusals)
        self.reader.makes_consumers = not self.has_account
        self.queues = QueueConsumers(
            self._client,
            self._api,
            self.subjects,
            self._inboxes,
            claim_seconds=settings.jobs.claim_seconds,
            request_timeout_seconds=self._timeout,
            signal=self.signal,
            give_back=lambda ack_subjects: self._spawn(self.give_back(ack_subjects)),
            makes_consumers=not self.has_account,
        )
        self.append = self._publisher.append
        self.append_many = self._publisher.append_many
        self.append_atomic = self._publisher.append_atomic
        self.last, self.next = self.reader.last, self.reader.next
        self.last_of = self.reader.last_of
        self.history, self.count = self.reader.history, self.reader.count
        self.extent, self.follow = self.reader.extent, self.reader.follow
        self.ensure_queue, self.puller = self.queues.ensure, self.queues.puller
        self.pause_queue, self.depths = self.queues.pause, self.queues.depths

    async def open(self, name: str) -> None:
        """Connects, and returns when the installation's streams exist."""
        await super().open(name)
        await self._wait_for_streams()
        request = partial(self._api, f"STREAM.INFO.{self.subjects.events_stream}")
        self._clock_task = asyncio.create_task(clock.keep(request), name="broker's clock")

    async def _wait_for_streams(self) -> None:
        """Retries until the broker answers; :func:`connect` limits how long that may take.

        By hand: ``trouble`` holds the last reason, for the error of :func:`connect`.
        """
        while True:
            try:
                return await self._ensure_streams()
            except BusUnavailable as error:
                self.trouble = str(error)
                log.info("%s; retrying", error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _ensure_streams(self) -> None:
        """Makes what is missing. Most roles may not: they wait for one that may."""
        replicas = self._settings.streams.replicas
        configs = streams.streams(self._settings, self.subjects)
        missing = await self.missing_streams()
        if missing and not self._looks_for_all:
            missing = [config["name"] for config in configs]  # it may not look for the others
        for config in configs:
            if config["name"] in missing:
                await self._make_stream(streams.complete(config, replicas))

    async def _make_stream(self, config: dict[str, Any]) -> None:
        error = (await self._create_stream(config)).get("error")
        if error and error.get("err_code") == _NO_STORAGE:
            raise StorageTooSmall(config["name"], config.get("max_bytes", 0))
        if error and error.get("err_code") != _ALREADY_EXISTS:
            raise BusRefused(f"stream {config['name']} cannot be made: {error.get('description')}")

    async def _create_stream(self, config: dict[str, Any]) -> dict[str, Any]:
        """NATS does not reply to an unauthorised request; it reports the violation by itself."""
        if not self._may_not_make:
            with suppress(access.NotPermitted):
                return await self._api(f"STREAM.CREATE.{config['name']}", config, fail=False)
        raise BusUnavailable(
            f"there is no stream {config['name']} yet, and this role may not make it: "
            "the orchestrator does, when it starts"
        )

    async def update_streams(self, extra_bytes: int = 0) -> dict[str, dict[str, Any]]:
        """Applies changed settings to the streams that exist.

        Args:
            extra_bytes: what the event log may hold beyond its bound.

        Returns:
            The changed fields, by the stream's name.

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
        if self._clock_task is not None:
            self._clock_task.cancel()
        await super().close()

    # --- streams ----------------------------------------------------------------------------------
    async def stream_states(self) -> list[dict[str, Any]]:
        """Configuration and state of all visible streams, as the JetStream API has it."""
        states: list[dict[str, Any]] = []
        while True:
            page = await self._api("STREAM.LIST", {"offset": len(states)})
            streams = page.get("streams") or []
            states += streams
            if not streams or len(states) >= page.get("total", 0):
                return states

    def stream_names(self) -> list[str]:
        """The streams that this client looks for.

        With a key that makes no streams that is only the event log, which is made last: each role
        may look for it, and of other streams for those that it reads.
        """
        if not self._looks_for_all:
            return [self.subjects.events_stream]
        return [stream["name"] for stream in streams.streams(self._settings, self.subjects)]

    async def missing_streams(self, names: Sequence[str] | None = None) -> list[str]:
        """The streams that the broker lacks.

        Args:
            names: those looked for; None for all of :meth:`stream_names`.

        Raises:
            BusError
        """
        names = self.stream_names() if names is None else names
        answers = [await self._api(f"STREAM.INFO.{name}", fail=False) for name in names]
        codes = [answer.get("error", {}).get("err_code") for answer in answers]
        return [name for name, code in zip(names, codes, strict=True) if code == _NO_STREAM]

    async def account(self) -> dict[str, Any]:
        """Usage and limits of the account, as the JetStream API has it."""
        return await self._api("INFO")

    async def adapt_streams(self, extra_bytes: int = 0) -> None:
        try:
            await self.update_streams(extra_bytes)
        except access.NotPermitted:
            raise BusRefused("this key may not update streams: make its keys anew") from None

    async def remove(self, stream: str, subject: str, before: int = 0) -> None:
        bound = {"seq": before} if before else {}
        await self._api(f"STREAM.PURGE.{stream}", {"filter": subject, **bound})

    async def remove_each(self, stream: str, bounds: Mapping[str, int]) -> None:
        """Each by a request of its own, all in one write: :meth:`remove` takes twice the CPU."""
        subject = f"$JS.API.STREAM.PURGE.{stream}"
        requests = [
            Outgoing(subject, json.dumps({"filter": name, "seq": before}).encode())
            for name, before in bounds.items()
        ]
        for answer in await self._publisher.append_many(requests):
            if isinstance(answer, BusError):
                raise answer

    async def remove_message(self, stream: str, sequence: int) -> None:
        """Deletes one message, if it exists. Raises BusError."""
        answer = await self._api(
            f"STREAM.MSG.DELETE.{stream}", {"seq": sequence, "no_erase": True}, fail=False
        )
        error = answer.get("error") or {}
        if error and error.get("err_code") not in _NO_MESSAGE:
            raise BusRefused(f"message {sequence} of {stream}: {error.get('description')}")

    # --- answering deliveries ---------------------------------------------------------------------
    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        await self._answer([d.ack_subject for d in deliveries], b"+ACK")

    async def give_back(self, ack_subjects: Sequence[str], delay_seconds: float = 0.0) -> None:
        delay = b' {"delay": %d}' % round(delay_seconds * 1e9) if delay_seconds else b""
        await self._answer(ack_subjects, b"-NAK" + delay)

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        await self._answer([d.ack_subject for d in deliveries], b"+WPI")

    async def _answer(self, subjects: Sequence[str], body: bytes) -> None:
        if subjects:
            await self._client.send(
                b"".join(
                    b"PUB %b %d\r\n%b\r\n" % (subject.encode(), len(body), body)
                    for subject in subjects
                )
            )

    # --- signals ----------------------------------------------------------------------------------
    async def listen(
        self,
        subject: str,
        handler: Callable[[str, bytes], Awaitable[None] | None],
        at_most: int = 0,
    ) -> Subscription:
        def on_message(source: str, _: bytes, body: bytes, __: bytes | None) -> None:
            if at_most and subscriptions.received >= at_most:
                return
            subscriptions.received += 1
            try:
                result = handler(source.removeprefix(_FROM_OTHERS), body)
            except Exception:
                log.exception("handler of %s failed", subject)
                return
            if result is not None:
                self._spawn(result)

        subscriptions = _Subscriptions()
        sources = (subject, f"{_FROM_OTHERS}{subject}") if self.has_account else (subject,)
        for source in sources:
            subscription = await self._client.subscribe_raw(source, on_message)
            subscriptions.parts.append(subscription)
            if at_most:
                await subscription.unsubscribe(limit=at_most)
        return subscriptions

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._handlers.add(task)
        task.add_done_callback(self._handled)

    def _handled(self, task: asyncio.Future[Any]) -> None:
        self._handlers.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("handler failed: %r", error, exc_info=error)


class _Subscriptions:
    """One subscription to processes with the same key, one to those with other keys."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.received = 0

    async def unsubscribe(self) -> None:
        for part in self.parts:
            with suppress(nats.errors.Error):
                await part.unsubscribe()
