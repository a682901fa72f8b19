"""Where a list goes on: a key of its order, sealed so that only this console can make it. Pure.

A cursor names the last row's values in the list's order, never a number of rows to skip: pages stay
whole while rows are added, and a late page costs as much as the first.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import msgspec

_MAC_BYTES = 12
_MAX_LENGTH = 500


class BadCursor(ValueError):
    """The text is no cursor of this list."""


def encode(position: tuple[Any, ...], listing: str, key: bytes) -> str:
    """A cursor.

    Args:
        position: values of the list's order at which the page ended.
        listing: the list and its filters: the cursor is of no use for another one.
        key: of this console.
    """
    body = msgspec.msgpack.encode(position)
    return base64.urlsafe_b64encode(_mac(body, listing, key) + body).decode().rstrip("=")


def decode(cursor: str, listing: str, key: bytes) -> tuple[Any, ...]:
    """The position that a cursor names.

    Raises:
        BadCursor: it was made for another list, by another console, or was changed.
    """
    if len(cursor) <= _MAX_LENGTH:
        try:
            raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        except ValueError:
            raw = b""
        mac, body = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if body and hmac.compare_digest(mac, _mac(body, listing, key)):
            return tuple(msgspec.msgpack.decode(body))
    raise BadCursor(
        "the cursor is not one of this list: take 'next' of a page with the same filters, from "
        "this console; or leave it out to begin at the newest"
    )


def _mac(body: bytes, listing: str, key: bytes) -> bytes:
    return hmac.new(key, listing.encode() + b"\0" + body, hashlib.sha256).digest()[:_MAC_BYTES]
