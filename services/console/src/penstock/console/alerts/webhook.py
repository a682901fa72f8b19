"""Posts a message as JSON, signed and within a time limit; follows no redirects.

The signature is HMAC-SHA-256 of ``TIMESTAMP.BODY`` with the channel's key, in the header
``Penstock-Signature: t=TIMESTAMP,v1=HEXADECIMAL``.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import socket
import ssl
from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

from penstock.console.alerts.addresses import check_address

_MOST_HEAD_BYTES = 16_384
_OK, _REDIRECT = 200, 300


class SendFailed(Exception):
    """A message was not taken; the text says why, without secrets."""


def signature(key: str, timestamp: int, body: bytes) -> str:
    """The value of the header by which a receiver knows who sent a message, and when."""
    signed = f"{timestamp}.".encode() + body
    return f"t={timestamp},v1={hmac.new(key.encode(), signed, hashlib.sha256).hexdigest()}"


async def post(
    url: str,
    body: bytes,
    key: str,
    notification_id: str,
    timestamp: int,
    allowed: Sequence[str],
    seconds: float,
) -> None:
    """Posts once.

    Args:
        url: of the receiver.
        body: JSON.
        key: to sign with; empty for no signature.
        notification_id: the same for each attempt, so that a receiver can drop repetitions.
        timestamp: POSIX seconds.
        allowed: private networks that may be reached.
        seconds: for all of it.

    Raises:
        SendFailed: no connection, no answer in time, or not a status of success.
    """
    try:
        target = urlsplit(url)
        async with asyncio.timeout(seconds):
            status = await _post(
                target, body, _headers(body, key, notification_id, timestamp), allowed
            )
    except TimeoutError:
        raise SendFailed(f"no answer within {seconds:g} s") from None
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise SendFailed(f"no connection: {error}"[:300]) from error
    except ValueError:  # its text holds a part of the address
        raise SendFailed("the channel's address is not one that can be used") from None
    if not _OK <= status < _REDIRECT:
        raise SendFailed(f"the receiver answered with status {status}, expected 200 to 299")


def _headers(body: bytes, key: str, notification_id: str, timestamp: int) -> dict[str, str]:
    signed = {"Penstock-Signature": signature(key, timestamp, body)} if key else {}
    return {
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "User-Agent": "penstock",
        "Connection": "close",
        "Penstock-Notification": notification_id,
        "Idempotency-Key": notification_id,
        **signed,
    }


async def _post(
    target: SplitResult, body: bytes, headers: dict[str, str], allowed: Sequence[str]
) -> int:
    host, is_tls = target.hostname or "", target.scheme == "https"
    port = target.port or (443 if is_tls else 80)
    resolved = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(one[4][0]) for one in resolved))
    for address in addresses:
        check_address(address, allowed)
    context = ssl.create_default_context() if is_tls else None
    reader, writer = await asyncio.open_connection(
        addresses[0],
        port,
        ssl=context,
        server_hostname=host if is_tls else None,
        limit=_MOST_HEAD_BYTES,
    )
    try:
        path = (target.path or "/") + (f"?{target.query}" if target.query else "")
        named = f"[{host}]" if ":" in host else host
        head = [f"POST {path} HTTP/1.1", f"Host: {named}:{port}"]
        head += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*head, "", ""]).encode("ascii") + body)
        await writer.drain()
        line = await reader.readline()
        parts = line.split(None, 2)
        if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
            raise SendFailed("the receiver's answer is no HTTP")
        return int(parts[1])
    finally:
        writer.close()
