"""The hot path of the NATS client: many messages in one write, replies without a task each.

nats-py formats, validates and flushes each publish by itself (about 25 µs) and builds a message
object for each delivery (about 20 µs). A worker that moves 8,000 jobs a second sends 24,000
messages and receives as many answers, so here frames are built in one buffer, and hot subscriptions
get the raw parts. Everything else (connecting, reconnecting, TLS, authentication, pings) stays
nats-py's. The private hooks used, ``_process_msg``, ``_process_pong`` and ``_send_command``, are
pinned by the lock file and held by the contract suite.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport
from nats.errors import Error
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

from penstock.bus.access import is_loopback
from penstock.bus.headers import EXPECTED
from penstock.bus.peers import owner_in, user_number, user_of
from penstock.bus.protocol import Outgoing

log = logging.getLogger("penstock.bus")


class NotPrivate(Error):  # type: ignore[misc]
    """A connection that must be encrypted is in clear text; nothing was sent."""


class NotTheBroker(Error):  # type: ignore[misc]
    """The process that listens on the port is another user's; nothing was sent."""


RawHandler = Callable[[str, bytes, bytes, bytes | None], None]
"""``(subject, reply, body, header block)``; called while the socket is read, must not block."""

_SUBJECT = re.compile(r"[!-~]+")
_EXPECT = f"{EXPECTED}: %d\r\n".encode()
_EXPECT_SUBJECT = f"{EXPECTED}-Subject: %b\r\n".encode()


class WireParser(Parser):  # type: ignore[misc]
    """nats-py's parser with a fast path for whole messages, which nearly all are.

    nats-py matches each control line against up to seven patterns and moves the rest of the buffer
    forward after each message: 24 µs a message at 64 kB a read, against 3 µs here.
    """

    async def parse(self, data: bytes = b"") -> None:
        if self.state == AWAITING_CONTROL_LINE and not self.header_needed:
            self.buf.extend(data)
            data = b""
            if done := await self._whole_messages(bytes(self.buf)):
                del self.buf[:done]
            if self._holds_begun_message():
                return  # the rest comes with the next read; nats-py would take that whole, slowly
        if data or self.buf:
            await super().parse(data)

    def _holds_begun_message(self) -> bool:
        return len(self.buf) < _BEGUN_BYTES and self.buf.startswith((b"MSG ", b"HMSG "))

    async def _whole_messages(self, buffer: bytes) -> int:
        """Handles the complete messages at the front; returns how many bytes they took."""
        position, end = 0, len(buffer)
        while position < end:
            line = buffer.find(b"\r\n", position)
            if line < 0:
                break
            fields = buffer[position:line].split()
            if not fields or fields[0] not in _MESSAGE:
                break
            has_headers = fields[0] == b"HMSG"
            body, size = line + 2, int(fields[-1])
            if body + size + 2 > end:
                break
            reply = fields[3] if len(fields) == (6 if has_headers else 5) else b""
            split = body + int(fields[-2]) if has_headers else body
            position = body + size + 2
            message = (
                int(fields[2]),
                fields[1],
                reply,
                buffer[split : body + size],
                buffer[body:split] if has_headers else None,
            )
            if not self.nc.deliver_raw(*message):
                await self.nc._process_msg(*message)
        return position


_PROOFS = frozenset({"sig", "jwt", "pass", "auth_token"})
"""Fields of CONNECT that show who we are."""

_MESSAGE = (b"MSG", b"HMSG")
_BEGUN_BYTES = 1 << 20
"""A larger message is nats-py's: here its beginning is copied with each read."""


class WireClient(Client):  # type: ignore[misc]
    """nats-py's client with access to raw frames and raw deliveries."""

    _transport: Any

    def __init__(self) -> None:
        super().__init__()
        self._raw: dict[int, RawHandler] = {}
        self._ps = WireParser(self)
        self.own_prefixes: tuple[str, ...] = ()
        """Prefixes of the installation's streams and of their subjects."""
        self.broker_user = ""
        """Setting ``nats.broker_user``."""

    @property
    def clustered(self) -> bool:
        """Whether the server has others beside it: then a stream may be without a leader a while,
        and a request without an answer is worth a retry."""
        return bool(self._server_info.get("cluster"))

    def is_away(self, place: str) -> bool:
        """Whether a stream, or the one of a subject, that no server answers for will come back.

        A broker that ends stops its streams before it closes the connections of its clients.
        """
        return self.clustered or place.startswith(self.own_prefixes)

    async def subscribe_raw(self, subject: str, handler: RawHandler) -> Subscription:
        """Calls ``handler`` for each message of ``subject``, without queue or task."""
        subscription = await self.subscribe(subject)
        self._raw[subscription._id] = handler
        return subscription

    async def send(self, frames: bytes) -> None:
        """Writes protocol frames; buffered by nats-py while it reconnects.

        At once where the socket keeps up: by way of nats-py's flusher each write comes a turn of
        the loop later, and a job that is picked up waits for four.
        """
        if self.is_connected and not self._pending and (socket := self._idle_socket()):
            socket.write(frames)
            return
        await self._send_command(frames)
        if self._flush_queue is not None and self._flush_queue.empty():
            await self._flush_pending()

    async def _process_connect_init(self) -> None:
        try:
            await super()._process_connect_init()
        except BaseException:
            # After a handshake that failed, nats-py would wait for ever for its socket to close.
            if writer := getattr(self._transport, "_io_writer", None):
                writer.transport.abort()
            self._transport = None
            raise

    async def _process_pong(self) -> None:
        """As nats-py's, whose read loop ends when the answer to a flush that timed out comes."""
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    def _connect_command(self) -> bytes:
        """CONNECT, the first line to a server, at each connection.

        The last look at what the connection is. A server may have announced others of its cluster,
        which no setting names, and nats-py goes to those too.

        Raises:
            NotPrivate: clear text where TLS is demanded, or credentials for another machine.
            NotTheBroker: a server on loopback without TLS is another user's process.
        """
        command: bytes = super()._connect_command()
        writer = getattr(self._transport, "_io_writer", None)
        if writer and writer.get_extra_info("ssl_object"):
            return command
        if self.options["tls_handshake_first"]:
            raise NotPrivate("nats: TLS is demanded and the connection has none")
        peer = writer.get_extra_info("peername") if writer else None
        fields = json.loads(command.partition(b" ")[2])
        if _PROOFS & fields.keys() and not (peer and is_loopback(peer[0])):
            raise NotPrivate("nats: credentials for another machine, and no TLS")
        if writer and peer and is_loopback(peer[0]):
            owner = owner_in(fields.get("auth_token") or "")
            check_broker_user(peer, writer.get_extra_info("sockname"), owner, self.broker_user)
        return command

    def _idle_socket(self) -> TcpTransport | None:
        transport = self._transport
        if not isinstance(transport, TcpTransport) or transport._io_writer is None:
            return None
        below = transport._io_writer.transport
        return None if below.is_closing() or below.get_write_buffer_size() else transport

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        self._raw.pop(sid, None)
        super()._remove_sub(sid, max_msgs)

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None
    ) -> None:
        if not self.deliver_raw(sid, subject, reply, data, headers):
            await super()._process_msg(sid, subject, reply, data, headers)

    def deliver_raw(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None
    ) -> bool:
        """Whether this is a message of a raw subscription; its handler has had it then."""
        handler = self._raw.get(sid)
        if handler is None:
            return False
        sub = self._subs.get(sid)
        if sub is not None:
            sub._received += 1
            if 0 < sub._max_msgs <= sub._received:
                self._subs.pop(sid, None)
                self._raw.pop(sid, None)
        try:
            handler(subject.decode(), reply, data, headers)
        except Exception:  # it would end nats-py's read loop
            log.exception("a message on %s could not be handled", subject)
        return True


def check_broker_user(peer: Any, own: Any, owner: int | None, broker_user: str) -> None:
    """Any user may listen on a port of loopback while its broker is down, or before it starts.

    Args:
        peer: the server's end of the connection, which has sent something.
        own: this process's end.
        owner: the user that the token of `penstock up` names; None without such a token.
        broker_user: setting ``nats.broker_user``: whose broker is trusted besides one of this user
            or of root.

    Raises:
        NotTheBroker: the server is another user's process.
        ConfigError: there is no ``broker_user``.
    """
    port = peer[1]
    try:
        user = user_of(peer[:2], own[:2])
    except (OSError, ValueError) as error:
        raise NotTheBroker(f"nats: the user of port {port} cannot be found: {error}") from None
    actual = "no user" if user is None else f"user {user}"
    if owner is not None:
        if user != owner:
            raise NotTheBroker(
                f"nats: port {port} is for the broker of user {owner} ('penstock up'), but {actual}"
                " has it; it was sent nothing. End that process, or start 'penstock up' again"
            )
        return
    trusted = {os.getuid(), 0, *([user_number(broker_user)] if broker_user else [])}
    if user not in trusted:
        raise NotTheBroker(
            f"nats: {actual} listens on port {port} of this machine, and without TLS only a broker "
            "of your own user or of root is used. It was sent nothing. If that broker is the right "
            "one, set nats.broker_user to its user's name"
        )


def frame(message: Outgoing, reply: bytes, extra: bytes = b"") -> bytes:
    """One message as protocol bytes.

    Args:
        reply: where the broker's answer goes; empty for none.
        extra: header lines that the bus adds.

    Raises:
        ValueError: a subject or header that would break out of its line.
    """
    if not _SUBJECT.fullmatch(message.subject):
        raise ValueError(f"subject {message.subject[:80]!r} holds blanks or control characters")
    lines = header_lines(message.headers) + extra
    if (expect := message.expect) is not None:
        lines += _EXPECT % expect.sequence
        if expect.subject:
            lines += _EXPECT_SUBJECT % expect.subject.encode()
    body, to = message.body, f"{message.subject} {reply.decode()}"
    if not lines:
        return b"".join((f"PUB {to} {len(body)}\r\n".encode(), body, b"\r\n"))
    size = len(lines) + 12  # "NATS/1.0\r\n" before, "\r\n" after
    start = f"HPUB {to} {size} {size + len(body)}\r\nNATS/1.0\r\n".encode()
    return b"".join((start, lines, b"\r\n", body, b"\r\n"))


def header_lines(headers: Mapping[str, str]) -> bytes:
    if not headers:
        return b""
    text = "".join([f"{key}: {value}\r\n" for key, value in headers.items()])
    ends = len(headers)  # one a line; more, where a value holds a line break
    if text.count("\r") != ends or text.count("\n") != ends or ":" in "".join(headers):
        raise ValueError(f"one of the headers {list(headers)[:9]} holds a line break or a colon")
    return text.encode()
