"""Pulling from JetStream consumers, with the pull protocol owned here.

nats-py's ``fetch`` leaves a live pull behind when it is cancelled: the next job lands in the
abandoned inbox and is invisible until its claim lapses. Here one inbox lives as long as its puller,
and a message that arrives without a fetch is given back at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
from nats.aio.subscription import Subscription

from penstock.bus.headers import parse_headers, stored_headers
from penstock.bus.protocol import Delivery, Stored
from penstock.bus.wire import WireClient

_ACK = b"$JS.ACK."
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FINAL = {404, 408}  # nothing there; the pull expired
_NO_CONSUMER = 503  # no responders
_RETRY_SECONDS = 0.2
_FULL = (b"Message Size Exceeds MaxBytes", b"Batch Completed")
"""Ends of a pull that reached its ``max_bytes``."""
PAGE_BYTES = 2 * 1024 * 1024
"""What an answer of many messages may hold. A connection that has more than ``max_pending`` unread
is cut off by the broker."""


class PullRequest(msgspec.Struct, omit_defaults=True):
    batch: int
    expires: int = 0
    no_wait: bool = False
    max_bytes: int = 0


def is_full(block: bytes | None) -> bool:
    """Whether a status says that a pull reached its ``max_bytes``."""
    return block is not None and any(end in block for end in _FULL)


class Inbox:
    """One consumer's deliveries to this process.

    Args:
        api_subject: ``$JS.API.CONSUMER.MSG.NEXT.<stream>.<consumer>``.
        unwanted: called with the ack subject of a message that no fetch waits for.
        redelivers: the consumer gives messages again, which its count of pending ones leaves out.
    """

    def __init__(
        self,
        client: WireClient,
        api_subject: str,
        unwanted: Callable[[bytes], None],
        *,
        redelivers: bool = True,
    ) -> None:
        self._client = client
        self._api = api_subject
        self._unwanted = unwanted
        self._redelivers = redelivers
        self._may_have_more = True
        self._subject = client.new_inbox()
        self._subscription: Subscription | None = None
        self._got: list[tuple[str, bytes, bytes, bytes | None]] = []
        self._waiter: asyncio.Future[None] | None = None
        self._want = 0
        self._pull = 0
        self._outstanding = 0.0
        self._too_large = False
        self.has_no_consumer = False
        self.trouble = ""
        """The last refusal, e.g. that the consumer was removed; empty after a success."""
        self.cut_short = False
        """Whether the last pull ended with an empty message, whatever else it was to bring.

        Between accounts, nats-server (2.15.1) takes an empty message without headers for the end
        of the answer, and drops what follows: a follower would never see it."""
        self.missed = False
        """Whether a delivery may be gone for good: it came while nothing was wanted, or was under
        way on a connection that broke. A queue gives it again; a follower must ask anew."""

    async def take(
        self, batch: int, wait_seconds: float
    ) -> list[tuple[str, bytes, bytes, bytes | None]]:
        """Raw ``(subject, reply, body, headers)``: those received, else the next ones."""
        if self._subscription is None:
            self._subscription = await self._client.subscribe_raw(f"{self._subject}.*", self._on)
        self.trouble, self.cut_short = "", False
        if time.monotonic() >= self._outstanding:
            if self._may_have_more or self._redelivers or wait_seconds <= 0:
                request = PullRequest(batch, no_wait=True, max_bytes=PAGE_BYTES)
                got = await self._round(request, batch, 5.0)
                if not got and self._too_large:
                    got = await self._round(PullRequest(1, no_wait=True), 1, 5.0)
                if got or wait_seconds <= 0 or self.trouble:
                    return got
            request = PullRequest(1, expires=max(int(wait_seconds * 1e9), 10_000_000))
            self._outstanding = time.monotonic() + wait_seconds
            return await self._round(request, 1, wait_seconds + 0.5)
        return await self._round(None, 1, wait_seconds)  # an earlier, cancelled wait still stands

    async def _round(
        self, request: PullRequest | None, want: int, seconds: float
    ) -> list[tuple[str, bytes, bytes, bytes | None]]:
        self._want = want
        self._too_large = False
        self._waiter = asyncio.get_running_loop().create_future()
        timer = asyncio.get_running_loop().call_later(seconds, self._wake)
        try:
            if request is not None:
                self._pull += 1
                await self._client.publish(
                    self._api,
                    msgspec.json.encode(request),
                    reply=f"{self._subject}.{self._pull}",
                )
            await self._waiter
        except BaseException:
            for _, reply, _, _ in self._got:
                self._unwanted(reply)
            self.missed, self._got = self.missed or bool(self._got), []
            raise
        finally:
            timer.cancel()
            self._want, self._waiter = 0, None
        got, self._got = self._got, []
        if got:
            self._outstanding = 0.0
        self._may_have_more = bool(got) and ack_numbers(got[-1][1])[-1] != b"0"
        return got

    def _on(self, subject: str, reply: bytes, body: bytes, headers: bytes | None) -> None:
        if reply.startswith(_ACK):
            if self._want <= 0:
                self._outstanding = 0.0
                self.missed = True
                self._unwanted(reply)
                return
            self._got.append((subject, reply, body, headers))
            self._want -= 1
            self.cut_short = not body and not headers
            if self._want == 0 or self.cut_short:
                self._wake()
            return
        if not subject.endswith(f".{self._pull}"):
            return  # the end of an earlier pull
        status, _ = parse_headers(headers)
        self._outstanding = 0.0
        self._too_large = is_full(headers)
        if status not in _FINAL and not self._too_large:
            self.has_no_consumer = status == _NO_CONSUMER
            self.trouble = (headers or b"").decode("utf-8", "replace").strip() or "no answer"
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def reconnected(self) -> None:
        """A restarted broker has no earlier pull: sends a new one."""
        self._outstanding = 0.0
        self.missed = self._may_have_more = True
        self._wake()

    async def close(self) -> None:
        self._want = 0
        if self._subscription is not None and self._client.is_connected:
            # After the round trip everything that was on its way has come, and was given back.
            subscription, self._subscription = self._subscription, None
            await self._client._send_unsubscribe(subscription._id)
            await self._client.flush(timeout=2)
            self._client._remove_sub(subscription._id)
            _go_on_ending()


def _go_on_ending() -> None:
    """nats-py waits by `asyncio.wait_for`, which up to Python 3.11 may swallow a cancellation
    (CPython issue 86296): a loop that was cancelled would go on for ever."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def delivery(subject: str, reply: bytes, body: bytes, block: bytes | None) -> Delivery:
    """A queue message, with the fields of its ack subject: ``$JS.ACK.<stream>.<consumer>.…``."""
    _, headers = parse_headers(block)
    deliveries, sequence, _, stored_ns, pending = ack_numbers(reply)
    return Delivery(
        subject=subject,
        body=body,
        headers=headers,
        ack_subject=reply.decode(),
        sequence=int(sequence),
        deliveries=int(deliveries),
        stored_at=int(stored_ns) / 1e9,
        pending=int(pending),
    )


def place(reply: bytes) -> int:
    """The number of a delivery among all of its consumer, from 1 on."""
    return int(ack_numbers(reply)[2])


def ack_numbers(reply: bytes) -> list[bytes]:
    """Deliveries, stream sequence, consumer sequence, nanoseconds when stored, pending.

    An ack subject has nine parts, or twelve where the broker names domain and account.
    """
    parts = reply.split(b".")
    return parts[-5:] if len(parts) == 9 else parts[6:11]


def stored_time(nanoseconds: int) -> datetime:
    """When a message was stored, UTC: cut off to microseconds, as ``fromisoformat`` does it.

    Args:
        nanoseconds: since 1970, as an ack subject has them.
    """
    return _EPOCH + timedelta(microseconds=nanoseconds // 1000)


def stored(subject: str, reply: bytes, body: bytes, block: bytes | None) -> Stored:
    """A followed message."""
    headers, compared = stored_headers(block)
    _, sequence, _, stored_ns, pending = ack_numbers(reply)
    return Stored(
        subject=subject,
        sequence=int(sequence),
        at=stored_time(int(stored_ns)),
        body=body,
        headers=headers,
        behind=int(pending),
        compared=compared,
    )
