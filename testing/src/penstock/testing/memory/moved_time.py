"""Events of a test whose time was moved: they happen at the moved time, too."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

_STAMP = re.compile(rb'\A\{"type":"\w+","id":"[^"]*","at":"([^"]*)"')
"""Where the encoding of an event has the time at which it happened."""


def with_moved_time(body: bytes, ahead_seconds: float) -> bytes:
    """An event whose time is that of the clock that a test moves.

    Processes stamp events by the clocks of their hosts, which a test cannot move. A stamp that lies
    ahead of this host's clock was taken from the broker's already, and stays.

    Args:
        body: what is stored; anything but an event stays as it is.
        ahead_seconds: how far the time was moved.
    """
    stamp = _STAMP.match(body) if ahead_seconds else None
    if stamp is None:
        return body
    at = datetime.fromisoformat(stamp[1].decode())
    if at > datetime.fromtimestamp(time.time(), UTC):
        return body
    moved = (at + timedelta(seconds=ahead_seconds)).isoformat().replace("+00:00", "Z")
    return body[: stamp.start(1)] + moved.encode() + body[stamp.end(1) :]
