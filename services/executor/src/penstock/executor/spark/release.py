"""Ending a Spark Connect session in the name of a worker that cannot any more.

Two calls of Spark's protocol, written out by hand: its Python package would take a second and
100 MB. Field numbers as in ``spark/connect/base.proto`` (4.x): session_id 1, user_context 2 (its
user_id 1), client_type 3, interrupt_type 4 (ALL 1).
"""

from __future__ import annotations

import logging
import time
from typing import Any
from urllib.parse import unquote, urlsplit

log = logging.getLogger("penstock.executor")

_SERVICE = "/spark.connect.SparkConnectService/"
_SECONDS = 4.0
_ARRIVED_SECONDS = 0.5
"""What the dead process sent last has begun by then: Spark 4.3 lets an execution run on for ever
that begins while its session is being released."""
_INTERRUPT_ALL = b"\x20\x01"
_CLIENT = "penstock"


def release(remote: str, session_id: str) -> bool:
    """Interrupts all work of a session and ends it. Blocks for up to some seconds.

    Args:
        remote: Spark Connect address, with the token and user that the session was opened with.

    Returns:
        False when the server did not do it; it forgets the session by itself after an hour.
    """
    import grpc  # type: ignore[import-untyped]  # noqa: PLC0415 - seldom needed, 20 MB

    time.sleep(_ARRIVED_SECONDS)
    place = urlsplit(remote)
    words = place.path.lstrip("/;").split(";")
    parameters = dict(word.split("=", 1) for word in words if "=" in word)
    request = _request(session_id, parameters.get("user_id", ""))
    try:
        with _channel(grpc, place.hostname or "", place.port or 15002, parameters) as channel:
            for verb, body in (
                ("Interrupt", request + _INTERRUPT_ALL),
                ("ReleaseSession", request),
            ):
                channel.unary_unary(_SERVICE + verb)(
                    body, timeout=_SECONDS, metadata=_metadata(parameters)
                )
    except grpc.RpcError as error:
        log.info("Spark session %s is not released: %s", session_id, error.code())
        return False
    return True


def _channel(grpc: Any, host: str, port: int, parameters: dict[str, str]) -> Any:
    address = f"{'127.0.0.1' if host == 'localhost' else host}:{port}"
    if parameters.get("use_ssl", "").lower() == "true":
        return grpc.secure_channel(address, grpc.ssl_channel_credentials())
    return grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)])


def _metadata(parameters: dict[str, str]) -> list[tuple[str, str]]:
    token = (
        f"Bearer {parameters['token']}"
        if "token" in parameters
        else parameters.get("authorization", "")
    )
    return [("authorization", unquote(token))] if token else []


def _request(session_id: str, user_id: str) -> bytes:
    user = _text(1, user_id)
    return _text(1, session_id) + b"\x12" + bytes([len(user)]) + user + _text(3, _CLIENT)


def _text(number: int, text: str) -> bytes:
    """A string field; none here is longer than 127 bytes, so that one byte holds the length."""
    raw = text.encode()[:100]
    return bytes([number << 3 | 2, len(raw)]) + raw
