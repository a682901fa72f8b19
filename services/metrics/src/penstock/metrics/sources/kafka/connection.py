"""One connection to a Kafka broker: requests in one go, answers in order, all of bounded size.

aiokafka encodes and decodes; its own connections take answers of any size and log each fault.
"""

from __future__ import annotations

import asyncio
import io
import ssl
import struct
from contextlib import suppress
from typing import Any

import msgspec
from aiokafka.conn import SaslPlainAuthenticator, ScramAuthenticator
from aiokafka.protocol.admin import (
    ApiVersionRequest,
    SaslAuthenticateRequest,
    SaslHandShakeRequest,
)
from aiokafka.protocol.api import Request

from penstock.metrics.sources.source import SourceAway

CLIENT = "penstock-metrics"
_MOST_BYTES = 4_000_000
"""Decoded, an answer takes up to twenty times as much memory."""
_AT_ONCE_BYTES = 65_536
"""A larger answer is decoded beside the loop, which others wait for."""


class AnswerTooLarge(SourceAway):
    """An answer that is not read."""


class Security(msgspec.Struct, frozen=True, kw_only=True):
    """How a broker is talked to.

    Attributes:
        tls: None for plain text.
        mechanism: of SASL: ``PLAIN``, ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``; empty for none.
    """

    tls: ssl.SSLContext | None = None
    mechanism: str = ""
    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"Security({self.mechanism!r})"


class KafkaConnection:
    """Closed where an answer is missing or unexpected; then it is of no more use."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, broker: str
    ) -> None:
        self._reader, self._writer, self._broker = reader, writer, broker
        self._versions: dict[int, tuple[int, int]] = {}
        self._number = 0

    @classmethod
    async def open(cls, host: str, port: int, security: Security) -> KafkaConnection:
        """Connects and, where that is asked for, authenticates.

        Raises:
            SourceAway: the broker is not reached, or refuses.
        """
        broker = f"{host}:{port}"
        try:
            reader, writer = await asyncio.open_connection(host, port, ssl=security.tls)
        except OSError as error:
            raise SourceAway(f"{broker} cannot be reached: {str(error)[:200]}") from error
        connection = cls(reader, writer, broker)
        try:
            await connection._agree()
            if security.mechanism:
                await connection._authenticate(security)
        except BaseException:
            connection.drop()
            raise
        return connection

    async def ask(self, *requests: Request[Any]) -> list[Any]:
        """The answers to these requests, in their order.

        Raises:
            AnswerTooLarge: one is not read.
            SourceAway: the connection broke, or the broker is too old.
        """
        try:
            structs = [self._send(request) for request in requests]
            return [await self._receive(nth, struct) for nth, struct in structs]
        except (OSError, EOFError) as error:
            self.drop()
            text = str(error)[:200] or type(error).__name__
            raise SourceAway(f"{self._broker} closed the connection: {text}") from error
        except BaseException:
            self.drop()
            raise

    @property
    def is_open(self) -> bool:
        """Neither side has closed it."""
        return not (self._writer.is_closing() or self._reader.at_eof())

    def drop(self) -> None:
        """Closes it without waiting."""
        self._writer.close()

    async def close(self) -> None:
        self.drop()
        with suppress(OSError):
            await self._writer.wait_closed()

    def _send(self, request: Request[Any]) -> tuple[int, Any]:
        try:
            body = request.prepare(self._versions)
        except Exception as error:  # of aiokafka, such as IncompatibleBrokerVersion
            raise SourceAway(f"{self._broker} is of an unknown release: {error}") from error
        self._number += 1
        header = body.build_request_header(correlation_id=self._number, client_id=CLIENT)
        message = header.encode() + body.encode()
        self._writer.write(struct.pack(">i", len(message)) + message)
        return self._number, body

    async def _receive(self, number: int, body: Any) -> Any:
        [size] = struct.unpack(">i", await self._reader.readexactly(4))
        if size > _MOST_BYTES:
            raise AnswerTooLarge(f"{self._broker} answered with more than {_MOST_BYTES} bytes")
        frame = io.BytesIO(await self._reader.readexactly(max(size, 0)))

        def decode() -> tuple[Any, Any]:
            return body.parse_response_header(frame), body.RESPONSE_TYPE.decode(frame)

        try:
            header, answer = decode() if size <= _AT_ONCE_BYTES else await asyncio.to_thread(decode)
        except Exception as error:  # whatever decoding raises of what is no answer
            raise SourceAway(f"{self._broker} answered with what is not of Kafka") from error
        if header.correlation_id != number:
            raise SourceAway(f"{self._broker} answered another request")
        return answer

    async def _agree(self) -> None:
        [answer] = await self.ask(ApiVersionRequest())
        self._versions = {key: (least, most) for key, least, most in answer.api_versions}

    async def _authenticate(self, security: Security) -> None:
        [answer] = await self.ask(SaslHandShakeRequest(security.mechanism))
        if answer.error_code:
            raise SourceAway(
                f"{self._broker} does not take SASL mechanism {security.mechanism}, but "
                f"{', '.join(answer.enabled_mechanisms)[:100]}"
            )
        steps, token = _authenticator(security), None
        while (step := await steps.step(token)) is not None:
            [answer] = await self.ask(SaslAuthenticateRequest(step[0]))
            if answer.error_code:
                raise SourceAway(f"{self._broker} refuses user {security.user!r}")
            token = answer.sasl_auth_bytes


def _authenticator(security: Security) -> Any:
    parts: dict[str, Any] = {
        "loop": asyncio.get_running_loop(),
        "sasl_plain_username": security.user,
        "sasl_plain_password": security.password,
    }
    if security.mechanism == "PLAIN":
        return SaslPlainAuthenticator(**parts)
    return ScramAuthenticator(**parts, sasl_mechanism=security.mechanism)
