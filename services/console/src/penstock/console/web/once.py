"""Requests that act run once for each `Idempotency-Key`.

Of equal requests with one key the first runs, also when they come at the same time, at several
consoles, or after a lost answer: the others get its answer, for 24 hours. The key is claimed by
compare-and-set on the stream ``CONSOLE``, where the console's role alone may store it. A
request that failed has had no effect as far as its handler reports it: the next one with its key
runs again.

Records are sealed with the console's keys, for one caller and key: none can be forged, and an
answer is read by consoles alone. An answer that shows a secret is not kept at all.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from typing import Annotated, Any, Literal

import msgspec
from litestar.datastructures import Headers
from litestar.exceptions import HTTPException, ValidationException
from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from msgspec import Meta

from penstock.bus.protocol import Bus, Expect, Outgoing, WrongSequence
from penstock.console.web.access import PRINCIPAL
from penstock.console.web.acting import method_of, shows_secret
from penstock.console.web.conflict import Conflict
from penstock.console.web.credentials import Principal
from penstock.events.envelope import Instant, utc_now
from penstock.events.subjects import Subjects
from penstock.jobs.errors import MissingKey, Undecryptable
from penstock.jobs.payloads.encryption import About, KeyRing

MAX_BODY_BYTES = 1024 * 1024
KEPT_SECONDS = 86_400
TAKEN_OVER_SECONDS = 60.0
"""A request that has no answer for so long was killed with its console."""
_PATIENCE_SECONDS = 10.0
_LOOK_SECONDS = 0.05
_MOST_BYTES = 256_000
"""Of an answer that is kept."""
_LONGEST_RECORD = 2 * _MOST_BYTES
_MEDIA_TYPES = ("", "application/json")
_KEY = re.compile(r"[\x21-\x7e]{1,200}")
_UNPROCESSABLE = 422
_LEAST_REDIRECT = 300
_LEAST_ERROR = 400
_TTL = {"Nats-TTL": f"{KEPT_SECONDS}s"}


class Answered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of a request.

    Attributes:
        request: SHA-256 of the caller, method, path and body: a key is for one request.
        at: when it began.
        state: ``begun``, ``done``, or ``failed``: the next one runs.
        body: of the answer; None where it is not kept.
    """

    request: str
    at: Instant
    state: Literal["begun", "done", "failed"] = "begun"
    status: Annotated[int, Meta(ge=0, lt=_LEAST_ERROR)] = 0
    media_type: Literal["", "application/json"] = ""
    body: Annotated[bytes, Meta(max_length=_MOST_BYTES)] | None = None


class ActingRequests(ASGIMiddleware):
    """Runs before the handlers of all requests that act.

    Args:
        bus: where keys are claimed.
        subjects: of the installation.
        keys: seal what is kept; of several consoles, the same for all.
    """

    def __init__(self, bus: Bus, subjects: Subjects, keys: KeyRing) -> None:
        self._bus, self._subjects, self._keys = bus, subjects, keys

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        principal: Principal | None = scope["state"].get(PRINCIPAL)
        key = Headers.from_scope(scope).get("idempotency-key", "")
        if method_of(scope) != "POST" or principal is None or not key:
            await next_app(scope, receive, send)
            return
        if not _KEY.fullmatch(key):
            raise ValidationException("Idempotency-Key is 1 to 200 printable characters")
        body = await _body(receive)
        digest = _digest(principal.name, scope["path"], body)
        name = _digest(principal.name, key)
        sequence = await self._claim(name, digest)
        if isinstance(sequence, Answered):
            await _replay(sequence, _with_headers(send, {"Idempotency-Replayed": "true"}))
            return
        is_kept = not shows_secret(scope["route_handler"].opt)
        answer = _Recorded(send)
        try:
            await next_app(scope, _replayed_body(body), answer.send)
        finally:
            await self._finish(name, sequence, digest, answer, is_kept)

    async def _claim(self, name: str, request: str) -> int | Answered:
        """The claim's sequence, where this request is the one to run; else the answer to give."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        expected = 0
        while True:
            try:
                return await self._store(name, Answered(request=request, at=utc_now()), expected)
            except WrongSequence:
                pass
            stored = await self._bus.last(self._subjects.console_stream, self._subject(name))
            if stored is None:
                expected = 0
                continue
            record = self._opened(name, stored.body)
            if record.request != request:
                detail = "this Idempotency-Key was used for another request; take a new one"
                raise HTTPException(detail, status_code=_UNPROCESSABLE)
            if record.state == "done":
                return record
            was_killed = (utc_now() - record.at).total_seconds() > TAKEN_OVER_SECONDS
            if record.state == "failed" or was_killed:
                expected = stored.sequence
                continue
            if time.monotonic() > deadline:
                raise Conflict(
                    "the first request with this Idempotency-Key still runs; try again later",
                    headers={"Retry-After": "5"},
                )
            await asyncio.sleep(_LOOK_SECONDS)

    async def _finish(
        self, name: str, sequence: int, request: str, answer: _Recorded, is_kept: bool
    ) -> None:
        record = Answered(request=request, at=utc_now(), state="failed")
        if 0 < answer.status < _LEAST_ERROR:
            record = msgspec.structs.replace(record, state="done", status=answer.status)
            if is_kept and answer.can_be_kept:
                record = msgspec.structs.replace(
                    record, media_type=answer.media_type, body=answer.body
                )
        try:
            await self._store(name, record, sequence)
        except WrongSequence:
            return  # it took too long and another one took it over
        finally:
            await answer.flush()

    async def _store(self, name: str, record: Answered, expected: int) -> int:
        sealed = self._keys.seal(msgspec.json.encode(record), _about(name))
        return await self._bus.append(Outgoing(self._subject(name), sealed, _TTL, Expect(expected)))

    def _opened(self, name: str, body: bytes) -> Answered:
        """A record of the console's. Raises HTTPException: it is none, so nothing is done."""
        try:
            if len(body) > _LONGEST_RECORD:
                raise ValueError(f"{len(body)} bytes")
            return msgspec.json.decode(self._keys.open(body, _about(name)), type=Answered)
        except (MissingKey, Undecryptable, ValueError) as error:
            raise Conflict(
                "what is kept of this Idempotency-Key does not open with this console's keys: look "
                "whether it was done, then take a new key (several consoles need the same "
                "encryption.key_file)",
            ) from error

    def _subject(self, name: str) -> str:
        return self._subjects.console("request", name, "answer")


class _Recorded:
    """An answer that is sent once its record is stored."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._messages: list[Message] = []
        self.status, self.media_type, self.body = 0, "", b""

    async def send(self, message: Message) -> None:
        self._messages.append(message)
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = {name.lower(): value for name, value in message["headers"]}
            self.media_type = headers.get(b"content-type", b"").decode("latin-1")
        elif message["type"] == "http.response.body":
            self.body += message.get("body", b"")

    @property
    def can_be_kept(self) -> bool:
        """Whether it can be given once more from its status, media type and body alone."""
        is_whole = self.media_type in _MEDIA_TYPES and len(self.body) <= _MOST_BYTES
        return is_whole and self.status < _LEAST_REDIRECT

    async def flush(self) -> None:
        for message in self._messages:
            await self._send(message)


async def _body(receive: Receive) -> bytes:
    """The whole body. The router's limit of its length holds when the handler reads it again."""
    parts: list[bytes] = []
    while True:
        message: Any = await receive()
        if message["type"] != "http.request":
            return b"".join(parts)
        parts.append(message.get("body", b""))
        if sum(map(len, parts)) > MAX_BODY_BYTES:
            raise HTTPException(f"at most {MAX_BODY_BYTES} bytes", status_code=413)
        if not message.get("more_body"):
            return b"".join(parts)


def _replayed_body(body: bytes) -> Receive:
    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


async def _replay(record: Answered, send: Send) -> None:
    if record.body is None:
        raise Conflict(
            "the first request with this Idempotency-Key was done, and its answer is not kept: a "
            "secret is shown once, a very long answer too",
        )
    headers = [(b"content-length", b"%d" % len(record.body))]
    if record.media_type:
        headers.append((b"content-type", record.media_type.encode()))
    await send({"type": "http.response.start", "status": record.status, "headers": headers})
    await send({"type": "http.response.body", "body": record.body, "more_body": False})


def _digest(*parts: str | bytes) -> str:
    return hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()


def _about(name: str) -> About:
    return About(purpose="answer", job=name, function="", queue="")


def _with_headers(send: Send, added: dict[str, str]) -> Send:
    pairs = [(name.lower().encode(), value.encode()) for name, value in added.items()]

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *pairs]
        await send(message)

    return send_with_headers
