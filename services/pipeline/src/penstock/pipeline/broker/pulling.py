"""A range of a stream, read in order through a short-lived pull consumer.

The pulls are the bus's (`bus.pull.Inbox`). Consumers are made here, not by `Bus.follow`: a range
ends, its messages come in chunks while Spark works on the chunk before, and header blocks and times
are not decoded, as most queries need neither (3.5 µs of CPU a message; `follow` takes 4.0,
`history` 6.8).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.bus.headers import parse_headers
from penstock.bus.protocol import BusRefused, BusUnavailable
from penstock.bus.pull import Inbox, ack_numbers
from penstock.pipeline.broker.link import Link
from penstock.pipeline.core.options import ReadOptions
from penstock.pipeline.core.ranges import Extent

_ALIVE_NS = 60_000_000_000
_RETRY_SECONDS = 0.2

DDL = "sequence bigint, subject string, time timestamp, headers map<string,string>, data binary"
SCHEMA = pa.schema(
    [
        ("sequence", pa.int64()),
        ("subject", pa.string()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("data", pa.binary()),
    ]
)


class Message(NamedTuple):
    """A stored message, decoded as little as possible."""

    sequence: int
    time_ns: int
    subject: str
    body: bytes
    headers: bytes | None


def record_batch(messages: Sequence[Message], with_headers: bool) -> pa.RecordBatch:
    """One batch of :data:`SCHEMA`; ``headers`` are null where there are none or none are wanted."""
    columns = [
        [message.sequence for message in messages],
        [message.subject for message in messages],
        [message.time_ns // 1000 for message in messages],
        [_headers(message.headers) if with_headers else None for message in messages],
        [message.body for message in messages],
    ]
    arrays = [
        pa.array(column, type=field.type) for column, field in zip(columns, SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _headers(block: bytes | None) -> list[tuple[str, str]] | None:
    return list(parse_headers(block)[1].items()) if block else None


class Pull:
    """One ordered consumer.

    Args:
        link: the connection.
        options: stream and filters.
        start: the consumer's ``deliver_policy`` and the fields that belong to it.
    """

    def __init__(self, link: Link, options: ReadOptions, start: dict[str, Any]) -> None:
        self._link, self._options = link, options
        self._name = f"p_{uuid.uuid4().hex[:16]}"
        place = f"$JS.API.CONSUMER.MSG.NEXT.{options.stream}.{self._name}"
        # unacknowledged messages need not be given back: the consumer has no acknowledgements
        self._inbox = Inbox(link.client, place, unwanted=lambda _: None)
        self._delivered = 0
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
        place = f"CONSUMER.CREATE.{self._options.stream}.{self._name}"
        await self._link.ask(place, {"stream_name": self._options.stream, "config": config})

    async def take(self, count: int) -> list[Message]:
        """Up to ``count`` messages that are there; fewer only at the end of the stream."""
        messages: list[Message] = []
        while len(messages) < count:
            page = await self._inbox.take(count - len(messages), 0.0)
            if self._inbox.trouble or self._inbox.missed:
                trouble = self._inbox.trouble or "a delivery was lost"
                raise BusUnavailable(f"stream {self._options.stream}: {trouble}")
            if not page:
                break
            messages += [self._message(*parts) for parts in page]
        return messages

    def _message(self, subject: str, reply: bytes, body: bytes, headers: bytes | None) -> Message:
        _, sequence, number, time_ns, _ = ack_numbers(reply)
        self._delivered += 1
        if int(number) != self._delivered:  # a delivery went missing on the way
            raise BusUnavailable(f"expected delivery {self._delivered}, found {int(number)}")
        return Message(int(sequence), int(time_ns), subject, body, headers)

    def close(self) -> None:
        """Deletes the consumer, which the broker else does after a while: a key may not delete."""
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
            time.sleep(_RETRY_SECONDS)


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
            # fewer than requested: the consumer is at its end, which may lag behind the stream's
            if at_end:
                if _nothing_left(link, options, position, last):
                    yield chunk
                    break
                time.sleep(_RETRY_SECONDS)
            # the next chunk comes while Spark works on this one
            size = min(options.fetch, last - position + 1)
            ahead = link.start(link.in_time(pull.take(size)))
            yield chunk
        pull.close()


def _nothing_left(link: Link, options: ReadOptions, position: int, last: int) -> bool:
    """A consumer may lag behind its stream: the stream's leader is asked for a further message."""
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
