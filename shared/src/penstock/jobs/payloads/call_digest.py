"""What a start says of the call that its worker was given: a queue message may hold another one."""

from __future__ import annotations

from hashlib import blake2b

_BYTES = 16


def call_digest(payload: bytes) -> str:
    """The digest of an encoded call, sealed arguments as they are; empty for a call left out."""
    return blake2b(payload, digest_size=_BYTES).hexdigest() if payload else ""
