"""The bus over NATS JetStream."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

import msgspec
import nats.errors

from penstock.bus import streams
from penstock.bus.protocol import (
    BusError,
    BusRefused,
    BusUnavailable,
    Delivery,
    Outgoing,
    PayloadTooLarge,
    QueueDepth,
    Stored,
    Subscription,
    WrongSequence,
)
from penstock.bus.pull import Inbox, delivery, stored
from penstock.bus.wire import WireClient, frame, parse_headers
from penstock.config import Settings
from penstock.events.subjects import Subjects

T = TypeVar("T")
log = logging.getLogger("penstock.bus")

_ALREADY_EXISTS = 10058
_WRONG_SEQUENCE = 10071
_BATCH_LIMIT = 1000
_FOLLOW_BATCH = 256
_PAGE_LIMIT = 10_000


class _ApiError(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _PubAck(msgspec.Struct):
    seq: int = 0
    error: _ApiError | None = None


class _Gather:
    """Answers of one pipelined round, collected without a future each."""

    __slots__ = ("answers", "done", "missing")

    def __init__(self, count: int) -> None:
        self.answers: list[bytes | None] = [None] * count
        self.missing = count
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def put(self, index: int, body: bytes) -> None:
        if self.answers[index] is None:
            self.answers[index] = body
            self.missing -= 1
            if not self.missing and not self.done.done():
                self.done.set_result(None)


_decode_ack = msgspec.json.Decoder(_PubAck).decode


async def connect(settings: Settings, name: str = "penstock") -> NatsBus:
    """A bus, connected, with the installation's streams in place.

    Raises:
        BusUnavailable: no broker within ``nats.connect_timeout_seconds``.
        BusRefused: the broker does not let us in or cannot keep the streams.
    """
    bus = NatsBus(settings)
    try:
        async with asyncio.timeout(settings.nats.connect_timeout_seconds):
            await bus.open(name)
    except TimeoutError:
        await bus.close()
        raise BusUnavailable(
            f"no NATS server answered at {settings.nats.url or '(no nats.url set)'} within "
            f"{settings.nats.connect_timeout_seconds:g} s; start one, or set nats.url"
        ) from None
    except BaseException:
        await bus.close()
        raise
    return bus


class NatsBus:
    """See :class:`penstock.bus.protocol.Bus`; one connection, one process."""

    def __init__(self, settings: Settings) -> None:
        self.subjects = Subjects(settings.prefix)
        self._settings = settings
        self._client = WireClient()
        self._inbox = f"_INBOX.{uuid.uuid4().hex}"
        self._rounds: dict[str, tuple[_Gather, int]] = {}
        self._count = 0
        self._queues: set[str] = set()
        self._inboxes: set[Inbox] = set()
        self._handlers: set[asyncio.Future[Any]] = set()
        self._timeout = settings.nats.request_timeout_seconds

    # --- connection --------------------------------------------------------------------------------
    async def open(self, name: str) -> None:
        reach = self._settings.nats
        options: dict[str, Any] = {}
        if reach.credentials_file:
            options["user_credentials"] = reach.credentials_file
        elif reach.user:
            options |= {"user": reach.user, "password": reach.password}
        if reach.ca_file:
            import ssl  # noqa: PLC0415 - only where TLS is used

            options["tls"] = ssl.create_default_context(cafile=reach.ca_file)
        await self._client.connect(
            servers=[url.strip() for url in reach.url.split(",") if url.strip()],
            name=name,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.2,
            connect_timeout=2,
            ping_interval=10,
            max_outstanding_pings=2,
            pending_size=64 * 1024 * 1024,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
            **options,
        )
        await self._client.subscribe_raw(f"{self._inbox}.*", self._on_answer)
        for stream in streams.streams(self._settings, self.subjects):
            await self._ensure_stream(streams.complete(stream, self._settings.streams.replicas))

    async def _on_error(self, error: Exception) -> None:
        log.debug("nats: %s", error)

    async def _on_disconnected(self) -> None:
        if not self._client.is_closed:
            log.warning("lost the broker; reconnecting")

    async def _on_reconnected(self) -> None:
        log.warning("broker is back")
        for inbox in self._inboxes:
            inbox.reconnected()

    async def _ensure_stream(self, config: dict[str, Any]) -> None:
        answer = await self._api(f"STREAM.CREATE.{config['name']}", config, fail=False)
        error = answer.get("error")
        if error and error.get("err_code") != _ALREADY_EXISTS:
            raise BusRefused(f"stream {config['name']} cannot be made: {error.get('description')}")

    async def _api(self, verb: str, body: Any = None, *, fail: bool = True) -> dict[str, Any]:
        try:
            message = await self._client.request(
                f"$JS.API.{verb}",
                json.dumps(body).encode() if body is not None else b"",
                timeout=self._timeout,
            )
        except nats.errors.NoRespondersError:
            raise BusRefused("the broker runs without JetStream; start it with -js") from None
        except (nats.errors.Error, TimeoutError, OSError) as error:
            raise BusUnavailable(f"the broker did not answer {verb}: {error!r}") from error
        answer: dict[str, Any] = json.loads(message.data)
        if fail and (error := answer.get("error")):
            raise BusRefused(f"{verb}: {error.get('description')}")
        return answer

    async def close(self) -> None:
        with suppress(Exception):
            if self._client.is_connected:
                await self._client.flush(timeout=1)
        with suppress(Exception):
            await self._client.close()

    # --- storing -----------------------------------------------------------------------------------
    def _on_answer(self, subject: str, _: bytes, body: bytes, headers: bytes | None) -> None:
        waiting = self._rounds.pop(subject, None)
        if waiting is not None:
            status = parse_headers(headers)[0] if headers else 0
            waiting[0].put(waiting[1], b"" if status == 503 else body or b"{}")

    async def _round(self, frames: Callable[[Callable[[int], bytes]], list[bytes]], n: int) -> _Gather:
        """Sends frames that ask for ``n`` answers and waits for these."""
        gather = _Gather(n)
        asked: list[str] = []

        def reply(index: int) -> bytes:
            self._count += 1
            subject = f"{self._inbox}.{self._count}"
            self._rounds[subject] = (gather, index)
            asked.append(subject)
            return subject.encode()

        try:
            await self._client.send(b"".join(frames(reply)))
            async with asyncio.timeout(self._timeout):
                await gather.done
        except TimeoutError:
            pass
        except nats.errors.Error as error:
            raise BusUnavailable(f"not connected to the broker: {error!r}") from error
        finally:
            if gather.missing:
                for subject in asked:
                    self._rounds.pop(subject, None)
        return gather

    def _check_size(self, message: Outgoing) -> None:
        size = len(message.body) + sum(len(k) + len(v) + 4 for k, v in message.headers.items())
        limit = self._client.max_payload - 512  # room for the headers that the bus adds
        if size > limit:
            raise PayloadTooLarge(
                f"{message.subject}: {size} bytes, the broker takes {limit}; "
                "keep large data in files and pass their names"
            )

    async def append(self, message: Outgoing) -> int:
        [answer] = await self.append_many([message])
        if isinstance(answer, BusError):
            raise answer
        return answer

    async def append_many(self, messages: Sequence[Outgoing]) -> list[int | BusError]:
        if not messages:
            return []
        for message in messages:
            self._check_size(message)
        gather = await self._round(
            lambda reply: [frame(message, reply(i)) for i, message in enumerate(messages)],
            len(messages),
        )
        return [
            _outcome(message, answer)
            for message, answer in zip(messages, gather.answers, strict=True)
        ]

    async def append_atomic(self, messages: Sequence[Outgoing]) -> int:
        last = len(messages)
        if not 1 <= last <= _BATCH_LIMIT:
            raise ValueError(f"an atomic batch holds 1 to {_BATCH_LIMIT} messages, found {last}")
        if last == 1:
            return await self.append(messages[0])
        for message in messages:
            self._check_size(message)
        batch = uuid.uuid4().hex.encode()

        def frames(reply: Callable[[int], bytes]) -> list[bytes]:
            # The broker answers the first message (empty) and the commit; errors come at either.
            built = []
            for number, message in enumerate(messages, 1):
                extra = b"Nats-Batch-Id: %b\r\nNats-Batch-Sequence: %d\r\n" % (batch, number)
                answer = b""
                if number == 1:
                    answer = reply(0)
                elif number == last:
                    answer, extra = reply(1), extra + b"Nats-Batch-Commit: 1\r\n"
                built.append(frame(message, answer, extra))
            return built

        gather = await self._round(frames, 2)
        answers = [_outcome(messages[0], answer) for answer in gather.answers]
        for outcome in answers:
            if isinstance(outcome, WrongSequence):
                raise outcome
        if isinstance(answers[1], BusError):
            raise answers[1]
        return answers[1]

    # --- reading -----------------------------------------------------------------------------------
    async def _get(self, stream: str, request: dict[str, Any]) -> Stored | None:
        answer = await self._api(f"STREAM.MSG.GET.{stream}", request, fail=False)
        if error := answer.get("error"):
            if error.get("code") == 404:
                return None
            raise BusRefused(f"{stream}: {error.get('description')}")
        message = msgspec.convert(answer["message"], _RawMessage, strict=False)
        return Stored(
            subject=message.subject,
            sequence=message.seq,
            at=message.time,
            body=message.data,
            headers=parse_headers(message.hdrs)[1],
        )

    async def last(self, stream: str, subject: str) -> Stored | None:
        return await self._get(stream, {"last_by_subj": subject})

    async def next(self, stream: str, subject: str, sequence: int) -> Stored | None:
        return await self._get(stream, {"seq": max(sequence, 1), "next_by_subj": subject})

    async def history(self, stream: str, subject: str, limit: int = 1000) -> list[Stored]:
        found: list[Stored] = []
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on(_: str, __: bytes, body: bytes, block: bytes | None) -> None:
            status, headers = parse_headers(block)
            if not status:
                found.append(_direct(body, headers))
            elif not done.done():
                done.set_result(None)

        inbox = f"{self._inbox}h{self._next_number()}"
        subscription = await self._client.subscribe_raw(inbox, on)
        request = {"seq": 1, "next_by_subj": subject, "batch": limit}
        try:
            await self._client.publish(
                f"$JS.API.DIRECT.GET.{stream}", json.dumps(request).encode(), reply=inbox
            )
            async with asyncio.timeout(self._timeout):
                await done
        except (TimeoutError, nats.errors.Error) as error:
            raise BusUnavailable(f"the broker did not answer for {subject}: {error!r}") from error
        finally:
            with suppress(nats.errors.Error):
                await subscription.unsubscribe()
        return found

    def _next_number(self) -> int:
        self._count += 1
        return self._count

    async def count(self, stream: str, subject: str) -> dict[str, int]:
        counts: dict[str, int] = {}
        for _ in range(_PAGE_LIMIT):
            answer = await self._api(
                f"STREAM.INFO.{stream}", {"subjects_filter": subject, "offset": len(counts)}
            )
            page = answer["state"].get("subjects") or {}
            counts |= page
            if not page or len(counts) >= answer.get("total", 0):
                break
        return counts

    async def remove(self, stream: str, subject: str) -> None:
        await self._api(f"STREAM.PURGE.{stream}", {"filter": subject})

    async def follow(
        self, stream: str, subjects: Sequence[str], start: str | int = "new"
    ) -> AsyncIterator[Stored]:
        position = start if isinstance(start, int) else None
        if start == "all":
            position = 1
        elif start == "new":
            position = await self._patiently(lambda: self._stream_end(stream)) + 1
        while True:
            inbox = await self._patiently(lambda: self._follower(stream, subjects, position))
            self._inboxes.add(inbox)
            try:
                while not inbox.trouble:
                    for raw in await inbox.take(_FOLLOW_BATCH, 5.0):
                        message = stored(*raw)
                        position = message.sequence + 1
                        yield message
            finally:
                self._inboxes.discard(inbox)
                with suppress(Exception):
                    await inbox.close()

    async def _stream_end(self, stream: str) -> int:
        info = await self._api(f"STREAM.INFO.{stream}")
        return int(info["state"]["last_seq"])

    async def _follower(
        self, stream: str, subjects: Sequence[str], position: int | None
    ) -> Inbox:
        name = f"f_{uuid.uuid4().hex[:16]}"
        config: dict[str, Any] = {
            "name": name,
            "filter_subjects": list(subjects),
            "ack_policy": "none",
            "mem_storage": True,
            "inactive_threshold": 30_000_000_000,
        }
        if position is None:
            config["deliver_policy"] = "last_per_subject"
        else:
            config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": position}
        await self._api(
            f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config}
        )
        return Inbox(self._client, f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", lambda _: None)

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await attempt()
            except BusUnavailable:
                await asyncio.sleep(0.2)

    # --- queues ------------------------------------------------------------------------------------
    async def ensure_queue(self, queue: str) -> None:
        if queue in self._queues:
            return
        stream = self.subjects.jobs_stream
        config = streams.consumer(self.subjects, queue, self._settings.jobs.claim_seconds)
        await self._api(
            f"CONSUMER.DURABLE.CREATE.{stream}.{config['name']}",
            {"stream_name": stream, "config": config},
        )
        self._queues.add(queue)

    def puller(self, queue: str) -> NatsPuller:
        return NatsPuller(self, queue)

    def _queue_inbox(self, queue: str) -> Inbox:
        stream, name = self.subjects.jobs_stream, self.subjects.consumer(queue)
        inbox = Inbox(
            self._client,
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}",
            lambda reply: self._soon(self.give_back([reply.decode()])),
        )
        self._inboxes.add(inbox)
        return inbox

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

    async def depths(self) -> dict[str, QueueDepth]:
        stream, found, seen = self.subjects.jobs_stream, {}, 0
        while True:
            page = await self._api(f"CONSUMER.LIST.{stream}", {"offset": seen})
            consumers = page.get("consumers") or []
            seen += len(consumers)
            for info in consumers:
                if info["name"].startswith("q_"):
                    depth = _depth(info)
                    found[depth.queue] = depth
            if not consumers or seen >= page.get("total", 0):
                return found

    # --- signals -----------------------------------------------------------------------------------
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
            try:
                result = handler(found, body)
            except Exception:
                log.exception("handler of %s failed", subject)
                return
            if result is not None:
                self._soon(result)

        subscription = await self._client.subscribe_raw(subject, on)
        if at_most:
            await subscription.unsubscribe(limit=at_most)
        return _Listening(subscription)

    def _soon(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._handlers.add(task)
        task.add_done_callback(self._handled)

    def _handled(self, task: asyncio.Future[Any]) -> None:
        self._handlers.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("handler failed: %r", error, exc_info=error)


class NatsPuller:
    """A queue's :class:`penstock.bus.protocol.Puller`."""

    def __init__(self, bus: NatsBus, queue: str) -> None:
        self._bus, self._queue = bus, queue
        self._inbox = bus._queue_inbox(queue)

    async def fetch(self, batch: int, wait_seconds: float) -> list[Delivery]:
        await self._bus.ensure_queue(self._queue)
        try:
            raw = await self._inbox.take(batch, wait_seconds)
        except nats.errors.Error as error:
            raise BusUnavailable(f"not connected to the broker: {error!r}") from error
        if self._inbox.trouble:
            log.warning("queue %s: %s", self._queue, self._inbox.trouble)
            self._bus._queues.discard(self._queue)  # its consumer may be gone: make it again
            await asyncio.sleep(0.2)
        return [delivery(*message) for message in raw]

    async def close(self) -> None:
        self._bus._inboxes.discard(self._inbox)
        with suppress(nats.errors.Error, TimeoutError):
            await self._inbox.close()


class _Listening:
    def __init__(self, subscription: Any) -> None:
        self._subscription = subscription

    async def unsubscribe(self) -> None:
        with suppress(nats.errors.Error):
            await self._subscription.unsubscribe()


class _RawMessage(msgspec.Struct):
    subject: str
    seq: int
    time: datetime
    data: bytes = b""
    hdrs: bytes = b""


def _direct(body: bytes, headers: dict[str, str]) -> Stored:
    return Stored(
        subject=headers.pop("Nats-Subject"),
        sequence=int(headers.pop("Nats-Sequence")),
        at=datetime.fromisoformat(headers.pop("Nats-Time-Stamp")),
        body=body,
        headers=headers,
    )


def _outcome(message: Outgoing, answer: bytes | None) -> int | BusError:
    """The sequence, or why the broker did not store the message."""
    if answer is None:
        return BusUnavailable(f"{message.subject}: no answer in time; it may be stored all the same")
    if not answer:
        return BusRefused(f"{message.subject}: no stream takes this subject")
    ack = _decode_ack(answer)
    if (error := ack.error) is None:
        return ack.seq
    if error.err_code == _WRONG_SEQUENCE:
        found = error.description.rpartition(":")[2].strip()
        expected = message.expect.sequence if message.expect else 0
        return WrongSequence(message.subject, expected, int(found) if found.isdigit() else 0)
    return BusRefused(f"{message.subject}: {error.description}")


def _depth(info: dict[str, Any]) -> QueueDepth:
    return QueueDepth(
        queue=info["name"].removeprefix("q_"),
        waiting=info["num_pending"],
        claimed=info["num_ack_pending"],
        delivered=info["delivered"]["consumer_seq"],
        delivered_sequence=info["delivered"]["stream_seq"],
        redelivered=info.get("num_redelivered", 0),
    )
