"""Reading the messages of streams, once or as they are stored."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import msgspec
import nats.errors

from penstock.bus import bounded
from penstock.bus.access import Refusals
from penstock.bus.headers import DirectAnswer, direct_answer, stored_headers
from penstock.bus.patterns import covering, matches
from penstock.bus.protocol import (
    FOLLOW_BATCH,
    BusRefused,
    BusUnavailable,
    Expect,
    Extent,
    Stored,
)
from penstock.bus.pull import PAGE_BYTES, Inbox, place, stored
from penstock.bus.streams import configured_bytes
from penstock.bus.wire import WireClient

T = TypeVar("T")
Api = Callable[..., Awaitable[dict[str, Any]]]

_FOLLOW_WAIT_SECONDS = 5.0
_FOLLOWER_LIVES_NS = 30_000_000_000
_NO_MESSAGE = 10037
_END_OF_BATCH, _NOTHING_FOUND = 204, 404
_PAGE_LIMIT = 10_000
_LAST_AT_ONCE = 64
_LAST_OF_AT_ONCE = 500
"""The broker finds at most 1,024 a request."""
_PAGES_AT_ONCE = 6
"""Together they are less than what the broker lets a connection have unread (``max_pending``)."""
_HISTORY_BYTES = 64 * 1024 * 1024
_FIRST_LOOK_SECONDS, _LATEST_LOOK_SECONDS = 0.02, 0.5


class Reader:
    """Reads streams.

    Args:
        client: the connection.
        api: requests of the JetStream API: ``await api(verb, body, fail=…)``.
        inboxes: of all pulls, so that a reconnect wakes them.
        timeout_seconds: for each answer.
        refusals: fails requests that the broker refuses.

    Attributes:
        makes_consumers: whether followers have consumers on the broker. Without, they poll for new
            messages: up to half a second later, and any number of them.
    """

    def __init__(
        self,
        client: WireClient,
        api: Api,
        inboxes: set[Inbox],
        timeout_seconds: float,
        refusals: Refusals,
    ) -> None:
        self._refusals = refusals
        self._client = client
        self._api = api
        self._inboxes = inboxes
        self._timeout = timeout_seconds
        self._pages = asyncio.Semaphore(_PAGES_AT_ONCE)
        self.makes_consumers = True

    async def _get(self, stream: str, request: dict[str, Any]) -> Stored | None:
        answer = await self._api(f"STREAM.MSG.GET.{stream}", request, fail=False)
        if error := answer.get("error"):
            if error.get("err_code") == _NO_MESSAGE:
                return None
            raise BusRefused(f"{stream}: {error.get('description')}")
        message = msgspec.convert(answer["message"], _RawMessage, strict=False)
        headers, compared = stored_headers(message.hdrs)
        return Stored(
            subject=message.subject,
            sequence=message.seq,
            at=datetime.fromisoformat(message.time),
            body=message.data,
            headers=headers,
            compared=compared,
        )

    async def last(self, stream: str, subject: str) -> Stored | None:
        return await self._get(stream, {"last_by_subj": subject})

    async def next(self, stream: str, subject: str, sequence: int) -> Stored | None:
        return await self._get(stream, {"seq": max(sequence, 1), "next_by_subj": subject})

    async def history(
        self, stream: str, subject: str, limit: int = 1000, start: int = 1
    ) -> list[Stored]:
        messages: list[Stored] = []
        held_bytes = 0
        while len(messages) < limit and held_bytes < _HISTORY_BYTES:
            page = await self.raw_page(stream, subject, limit - len(messages), start)
            messages += (message for message, _ in page)
            if not page or not messages[-1].behind:
                break
            held_bytes += sum(len(message.body) for message, _ in page)
            start = messages[-1].sequence + 1  # the page was cut short: its messages are large
        return messages

    async def raw_page(
        self, stream: str, subject: str, limit: int, start: int
    ) -> list[tuple[Stored, bytes | None]]:
        """As :meth:`history`, with the header block as it came."""
        request = {
            "seq": max(start, 1), "next_by_subj": subject, "batch": limit, "max_bytes": PAGE_BYTES
        }  # fmt: skip
        return await self._direct(stream, request, subject)

    async def last_of(
        self, stream: str, subjects: Sequence[str], before: int = 0
    ) -> dict[str, Stored]:
        parts = [
            subjects[i : i + _LAST_OF_AT_ONCE] for i in range(0, len(subjects), _LAST_OF_AT_ONCE)
        ]
        read = await bounded.gather(
            partial(self._last_of_part, stream, before), parts, _PAGES_AT_ONCE
        )
        return {message.subject: message for part in read for message in part}

    async def _last_of_part(
        self, stream: str, before: int, subjects: Sequence[str]
    ) -> list[Stored]:
        messages: list[Stored] = []
        missing = list(subjects)
        while missing:
            request: dict[str, Any] = {"multi_last": missing, "max_bytes": PAGE_BYTES}
            if before:
                request["up_to_seq"] = before - 1
            page = await self._direct(stream, request, f"{len(missing)} subjects")
            messages += (message for message, _ in page)
            if not page or not page[-1][0].behind:
                break
            read = {message.subject for message, _ in page}  # cut short: its messages are large
            missing = [subject for subject in missing if subject not in read]
        return messages

    async def _direct(
        self, stream: str, request: dict[str, Any], what: str
    ) -> list[tuple[Stored, bytes | None]]:
        """Messages, and the header block of each as it came. From any replica.

        Args:
            what: is read, for the error.
        """
        messages: list[tuple[Stored, bytes | None]] = []
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def on_message(_: str, __: bytes, body: bytes, block: bytes | None) -> None:
            answer = direct_answer(block)
            if not isinstance(answer, int):
                messages.append((_message(body, *answer), block))
            elif not done.done():
                done.set_result(answer)

        inbox = self._client.new_inbox()
        subscription = await self._client.subscribe_raw(inbox, on_message)
        api_subject = f"$JS.API.DIRECT.GET.{stream}"

        async def request_page() -> int:
            await self._client.publish(api_subject, json.dumps(request).encode(), reply=inbox)
            return await done

        try:
            async with self._pages, asyncio.timeout(self._timeout):
                status = await self._refusals.watch([api_subject], request_page())
                if status not in (_END_OF_BATCH, _NOTHING_FOUND):
                    kind = BusUnavailable if self._client.is_away(stream) else BusRefused
                    raise kind(f"{stream}: no such stream, or no direct reading ({status})")
        except (TimeoutError, nats.errors.Error) as error:
            raise BusUnavailable(f"the broker did not answer for {what}: {error!r}") from error
        finally:
            with suppress(nats.errors.Error):
                await subscription.unsubscribe()
        return messages

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

    async def extent(self, stream: str) -> Extent:
        info = await self._api(f"STREAM.INFO.{stream}")
        state = info["state"]
        return Extent(
            first=state["first_seq"],
            last=state["last_seq"],
            messages=state["messages"],
            bytes=state["bytes"],
            max_bytes=max(info["config"].get("max_bytes", 0), 0),
            configured_bytes=configured_bytes(info["config"]),
        )

    async def follow(
        self,
        stream: str,
        subjects: Sequence[str],
        start: str | int = "new",
        most: int = FOLLOW_BATCH,
    ) -> AsyncIterator[Stored]:
        position = start if isinstance(start, int) else None
        if start == "all":
            position = 1
        elif start == "new":
            position = await self._patiently(lambda: self._stream_end(stream)) + 1
        if not self.makes_consumers:
            if position is None:
                last, beginning = await self._patiently(
                    partial(self._last_of_each, stream, subjects)
                )
                position = beginning
                for message in last:
                    yield message
            async for message in self._read_on(stream, subjects, position, most):
                yield message
        while True:
            inbox = await self._patiently(partial(self._follower, stream, subjects, position))
            self._inboxes.add(inbox)
            delivered = 0
            try:
                while not (inbox.trouble or inbox.cut_short or inbox.missed):
                    for raw in await inbox.take(most, _FOLLOW_WAIT_SECONDS):
                        delivered += 1
                        if place(raw[1]) != delivered:  # one before it never came
                            inbox.missed = True
                            break
                        message = stored(*raw)
                        position = message.sequence + 1
                        yield message
            finally:
                self._inboxes.discard(inbox)
                with suppress(Exception):
                    await inbox.close()

    async def _read_on(
        self, stream: str, subjects: Sequence[str], position: int, most: int
    ) -> AsyncIterator[Stored]:
        pattern = covering(subjects)
        wait = _FIRST_LOOK_SECONDS
        while True:
            page = await self._patiently(partial(self.history, stream, pattern, most, position))
            for message in page:
                position = message.sequence + 1
                if any(matches(subject, message.subject) for subject in subjects):
                    yield message
            if page:
                wait = _FIRST_LOOK_SECONDS
                continue
            await asyncio.sleep(wait)
            wait = min(wait * 2, _LATEST_LOOK_SECONDS)

    async def _last_of_each(self, stream: str, subjects: Sequence[str]) -> tuple[list[Stored], int]:
        """The last message of each subject, oldest first, and the sequence of the next one.

        All is asked of the stream's leader: direct reading may reach a replica that lags, and what
        that one does not have yet would be skipped.
        """
        end = await self._stream_end(stream)
        names = {name for pattern in subjects for name in await self.count(stream, pattern)}
        last = await bounded.gather(partial(self.last, stream), sorted(names), _LAST_AT_ONCE)
        until_end = [one for one in last if one is not None and one.sequence <= end]
        return sorted(until_end, key=lambda one: one.sequence), end + 1

    async def _stream_end(self, stream: str) -> int:
        info = await self._api(f"STREAM.INFO.{stream}")
        return int(info["state"]["last_seq"])

    async def _follower(self, stream: str, subjects: Sequence[str], position: int | None) -> Inbox:
        name = f"f_{uuid.uuid4().hex[:16]}"
        config: dict[str, Any] = {
            "name": name,
            "filter_subjects": list(subjects),
            "ack_policy": "none",
            "mem_storage": True,
            "inactive_threshold": _FOLLOWER_LIVES_NS,
        }
        if position is None:
            config["deliver_policy"] = "last_per_subject"
        else:
            config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": position}
        await self._api(
            f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config}
        )
        next_message = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
        return Inbox(self._client, next_message, lambda _: None, redelivers=False)

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await attempt()
            except BusUnavailable:
                await asyncio.sleep(0.2)


class _RawMessage(msgspec.Struct):
    subject: str
    seq: int
    time: str
    data: bytes = b""
    hdrs: bytes = b""


def _message(
    body: bytes, answer: DirectAnswer, headers: dict[str, str], compared: Expect | None
) -> Stored:
    return Stored(
        subject=answer.subject,
        sequence=answer.sequence,
        at=datetime.fromisoformat(answer.at),
        body=body,
        headers=headers,
        behind=answer.behind,
        compared=compared,
    )
