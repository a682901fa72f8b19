"""A range of a stream, read in order through a short-lived pull consumer."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from penstock.bus.protocol import BusRefused, BusUnavailable
from penstock.bus.pull import PAGE_BYTES, is_full
from penstock.bus.wire import parse_headers
from penstock.pipeline.broker.link import Link
from penstock.pipeline.core.options import ReadOptions
from penstock.pipeline.core.ranges import Extent

_ALIVE_NS = 60_000_000_000
_FINAL = {404, 408}
_AGAIN_SECONDS = 0.2


class Message(NamedTuple):
    """A stored message, as little of it worked out as can be."""

    sequence: int
    time_ns: int
    subject: str
    body: bytes
    headers: bytes | None


class Pull:
    """One ordered consumer, from where ``start`` says.

    Args:
        start: the consumer's ``deliver_policy`` with what belongs to it.
    """

    def __init__(self, link: Link, options: ReadOptions, start: dict[str, Any]) -> None:
        self._link, self._options = link, options
        self._name = f"p_{uuid.uuid4().hex[:16]}"
        self._inbox = link.client.new_inbox()
        self._got: list[tuple[str, bytes, bytes, bytes | None]] = []
        self._want, self._delivered = 0, 0
        self._is_full = False
        self._status, self._refusal = 0, ""
        self._ended = asyncio.Event()
        link.run(self._open(start))

    async def _open(self, start: dict[str, Any]) -> None:
        config = {
            "name": self._name,
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": _ALIVE_NS,
            **({"filter_subjects": self._options.filters} if self._options.filters else {}),
            **start,
        }
        await self._link.client.subscribe_raw(self._inbox, self._on)
        place = f"CONSUMER.CREATE.{self._options.stream}.{self._name}"
        await self._link.ask(place, {"stream_name": self._options.stream, "config": config})

    def _on(self, subject: str, reply: bytes, body: bytes, headers: bytes | None) -> None:
        if reply:
            self._got.append((subject, reply, body, headers))
            if len(self._got) >= self._want:
                self._ended.set()
            return
        self._status, _ = parse_headers(headers)
        self._is_full = is_full(headers)
        self._refusal = (headers or b"").decode("utf-8", "replace").strip()
        self._ended.set()

    async def take(self, count: int) -> list[Message]:
        """Up to ``count`` messages that are there; fewer only at the end of what is."""
        batch, bound = count, PAGE_BYTES
        while True:
            held = len(self._got)
            await self._ask_for(batch, bound)
            if not self._is_full or len(self._got) >= count:
                break
            is_large = len(self._got) == held  # a single message that does not fit
            batch, bound = (1, 0) if is_large else (count - len(self._got), PAGE_BYTES)
        raw, self._got = self._got, []
        return [self._message(*parts) for parts in raw]

    async def _ask_for(self, batch: int, bound: int) -> None:
        self._want, self._status, self._is_full = len(self._got) + batch, 0, False
        self._ended.clear()
        request = {"batch": batch, "no_wait": True, **({"max_bytes": bound} if bound else {})}
        await self._link.client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{self._options.stream}.{self._name}",
            json.dumps(request).encode(),
            reply=self._inbox,
        )
        await self._ended.wait()
        if self._status and self._status not in _FINAL and not self._is_full:
            raise BusUnavailable(f"stream {self._options.stream}: {self._refusal}")

    def _message(self, subject: str, reply: bytes, body: bytes, headers: bytes | None) -> Message:
        parts = reply.split(b".")
        _, sequence, number, time_ns, _ = parts[4:9] if len(parts) == 9 else parts[6:11]
        self._delivered += 1
        if int(number) != self._delivered:  # a delivery went missing on the way
            raise BusUnavailable(f"expected delivery {self._delivered}, found {int(number)}")
        return Message(int(sequence), int(time_ns), subject, body, headers)

    def close(self) -> None:
        """The broker drops the consumer by itself after a while; who may only read cannot ask."""
        if self._options.nkey:
            return
        with suppress(BusUnavailable, BusRefused):
            self._link.run(self._link.ask(f"CONSUMER.DELETE.{self._options.stream}.{self._name}"))


def read_range(options: ReadOptions, first: int, last: int) -> Iterator[list[Message]]:
    """The messages with sequences ``first`` to ``last`` that exist and fit, in order, in chunks.

    A broken connection is made anew and read from where it broke.

    Raises:
        BusUnavailable: no progress for ``timeout_seconds``.
        BusRefused: not allowed, or no such stream.
    """
    position, deadline = first, time.monotonic() + options.timeout_seconds
    while position <= last:
        try:
            for chunk in _read(options, position, last):
                if chunk:
                    yield chunk
                    position = chunk[-1].sequence + 1
                    deadline = time.monotonic() + options.timeout_seconds
                elif time.monotonic() > deadline:
                    raise BusUnavailable(f"stream {options.stream}: no reader at {position}")
            return
        except BusUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(_AGAIN_SECONDS)


def _read(options: ReadOptions, first: int, last: int) -> Iterator[list[Message]]:
    with Link(options) as link:
        start = {"deliver_policy": "by_start_sequence", "opt_start_seq": first}
        pull = Pull(link, options, start)
        position, size = first, min(options.fetch, last - first + 1)
        ahead = link.start(link.in_time(pull.take(size)))
        while True:
            chunk = ahead.result()
            at_end = len(chunk) < size
            if chunk and chunk[-1].sequence >= last:
                yield [message for message in chunk if message.sequence <= last]
                break
            position = chunk[-1].sequence + 1 if chunk else position
            if at_end:
                if _nothing_left(link, options, position, last):
                    yield chunk
                    break
                time.sleep(_AGAIN_SECONDS)
            # the next chunk comes while Spark works on this one
            size = min(options.fetch, last - position + 1)
            ahead = link.start(link.in_time(pull.take(size)))
            yield chunk
        pull.close()


def _nothing_left(link: Link, options: ReadOptions, position: int, last: int) -> bool:
    """A consumer may lag behind its stream; only the stream's leader knows that no more comes."""
    if position > last:
        return True
    for subject in options.filters or [">"]:
        next_sequence = link.next_sequence(options.stream, subject, position)
        if next_sequence is not None and next_sequence <= last:
            return False
    return True


def sequence_before(link: Link, options: ReadOptions, time: datetime, extent: Extent) -> int:
    """The last sequence stored before ``time``."""
    pull = Pull(
        link,
        options,
        {"deliver_policy": "by_start_time", "opt_start_time": time.isoformat()},
    )
    messages = link.run(pull.take(1))
    pull.close()
    return messages[0].sequence - 1 if messages else extent.last
