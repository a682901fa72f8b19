"""Storing messages: many frames in one write, answers collected without a future each."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence

import msgspec
import nats.errors

from penstock.bus import access
from penstock.bus.headers import parse_headers
from penstock.bus.protocol import (
    BusError,
    BusRefused,
    BusUnavailable,
    Outgoing,
    PayloadTooLarge,
    StreamFull,
    TooManyBatches,
    WrongSequence,
)
from penstock.bus.wire import WireClient, frame

_WRONG_SEQUENCE = 10071
_BATCH_LIMIT = 1000
_BUS_HEADERS_BYTES = 512
_NO_RESPONDERS = 503
_BATCH_NOT_KEPT = {10210, 10176}
"""Too many atomic batches are open (the server allows 50 a stream, of all clients together), or
this one was dropped before its commit: in both cases nothing of it was stored."""
_FULL = 10077
_NOT_PERMITTED = b"-"
"""Stands for the answer to a message that the broker refused: no broker answers so."""
LEADERLESS = {10008, 10118}
"""Errors of a cluster that pass: JetStream is temporarily unavailable, the stream is offline."""


class _ApiError(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _PubAck(msgspec.Struct):
    seq: int = 0
    error: _ApiError | None = None


class _Gather:
    """Answers of one pipelined round, collected without a future each."""

    __slots__ = ("answers", "done", "missing", "refused")

    def __init__(self, count: int) -> None:
        self.answers: list[bytes | None] = [None] * count
        self.missing = count
        self.refused = False  # some of it, by the broker
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def put(self, index: int, body: bytes) -> None:
        if self.answers[index] is None:
            self.answers[index] = body
            self.missing -= 1
            if not self.missing and not self.done.done():
                self.done.set_result(None)


_decode_ack = msgspec.json.Decoder(_PubAck).decode


class Publisher:
    """Appends to streams and reads the broker's answers.

    Args:
        timeout_seconds: how long the answers of one round may take.
        refusals: makes the errors of what the broker refuses.
    """

    def __init__(
        self,
        client: WireClient,
        timeout_seconds: float,
        refusals: access.Refusals | None = None,
    ) -> None:
        self._refusals = refusals or access.Refusals("")
        self._open: dict[_Gather, Sequence[Outgoing]] = {}
        self._client = client
        self._timeout = timeout_seconds
        self._inbox = ""
        self._rounds: dict[str, tuple[_Gather, int]] = {}
        self._count = 0

    async def open(self) -> None:
        self._inbox = self._client.new_inbox()
        await self._client.subscribe_raw(f"{self._inbox}.*", self._on_answer)

    def _on_answer(self, subject: str, _: bytes, body: bytes, headers: bytes | None) -> None:
        waiting = self._rounds.pop(subject, None)
        if waiting is not None:
            status = parse_headers(headers)[0] if headers else 0
            waiting[0].put(waiting[1], b"" if status == _NO_RESPONDERS else body or b"{}")

    def refuse(self, subject: str) -> None:
        """Ends the wait for answers to what was sent to ``subject``, in small letters."""
        for gather, messages in self._open.items():
            for index, message in enumerate(messages):
                if message.subject.lower() == subject:
                    # An atomic batch has two answers: neither comes where any part was refused.
                    refused = [index] if len(gather.answers) == len(messages) else [0, 1]
                    gather.refused = True
                    for missing in refused:
                        gather.put(missing, _NOT_PERMITTED)

    async def _round(
        self,
        frames: Callable[[Callable[[int], bytes]], list[bytes]],
        n: int,
        messages: Sequence[Outgoing],
    ) -> _Gather:
        """Sends frames of messages that ask for ``n`` answers and waits for these."""
        gather = _Gather(n)
        self._open[gather] = messages
        subjects: list[str] = []

        def reply(index: int) -> bytes:
            self._count += 1
            subject = f"{self._inbox}.{self._count}"
            self._rounds[subject] = (gather, index)
            subjects.append(subject)
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
            del self._open[gather]
            if gather.missing or gather.refused:
                for subject in subjects:
                    self._rounds.pop(subject, None)
        return gather

    def _too_large(self, message: Outgoing) -> PayloadTooLarge | None:
        size = len(message.body)
        for key, value in message.headers.items():
            size += len(key) + len(value) + 4
        limit = self._client.max_payload - _BUS_HEADERS_BYTES
        if size <= limit:
            return None
        return PayloadTooLarge(
            f"{message.subject}: {size} bytes, the broker takes {limit}; "
            "keep large data in files and pass their names"
        )

    async def append(self, message: Outgoing) -> int:
        [answer] = await self.append_many([message])
        if isinstance(answer, BusError):
            raise answer
        return answer

    async def append_many(self, messages: Sequence[Outgoing]) -> list[int | BusError]:
        refused = [self._too_large(message) for message in messages]
        if any(refused):
            fitting = [one for one, error in zip(messages, refused, strict=True) if not error]
            rest = iter(await self.append_many(fitting))
            return [error or next(rest) for error in refused]
        if not messages:
            return []
        gather = await self._round(
            lambda reply: [frame(message, reply(i)) for i, message in enumerate(messages)],
            len(messages),
            messages,
        )
        return [
            self._outcome(message, answer)
            for message, answer in zip(messages, gather.answers, strict=True)
        ]

    async def append_atomic(self, messages: Sequence[Outgoing]) -> int:
        last = len(messages)
        if not 1 <= last <= _BATCH_LIMIT:
            raise ValueError(f"an atomic batch holds 1 to {_BATCH_LIMIT} messages, found {last}")
        if last == 1:
            return await self.append(messages[0])
        for message in messages:
            if error := self._too_large(message):
                raise error
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

        gather = await self._round(frames, 2, messages)
        answers = [self._outcome(messages[0], answer) for answer in gather.answers]
        for outcome in answers:  # the first says why; the commit then only that none was begun
            if isinstance(outcome, WrongSequence | TooManyBatches | StreamFull):
                raise outcome
        if isinstance(answers[1], BusError):
            raise answers[1]
        return answers[1]

    def _outcome(self, message: Outgoing, answer: bytes | None) -> int | BusError:
        """The sequence, or why the broker did not store the message."""
        if answer == _NOT_PERMITTED:
            return self._refusals.error(message.subject)
        if answer is None:
            return BusUnavailable(
                f"{message.subject}: no answer in time; it may be stored all the same"
            )
        if not answer:
            if self._client.is_away(message.subject):
                return BusUnavailable(f"{message.subject}: its stream does not answer")
            return BusRefused(f"{message.subject}: no stream takes this subject")
        ack = _decode_ack(answer)
        if (error := ack.error) is None:
            return ack.seq
        if error.err_code == _WRONG_SEQUENCE:
            actual = error.description.rpartition(":")[2].strip()
            expected = message.expect.sequence if message.expect else 0
            return WrongSequence(message.subject, expected, int(actual) if actual.isdigit() else 0)
        if error.err_code in _BATCH_NOT_KEPT:
            return TooManyBatches(f"{message.subject}: {error.description}; nothing was stored")
        if error.err_code == _FULL:
            return StreamFull(f"{message.subject}: its stream is full ({error.description})")
        kind = BusUnavailable if error.err_code in LEADERLESS else BusRefused
        return kind(f"{message.subject}: {error.description}")
