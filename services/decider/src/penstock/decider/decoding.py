"""Decoding stored messages of any content: what is no event is logged with its reason."""

from __future__ import annotations

import logging

from penstock.bus.protocol import Stored
from penstock.events.envelope import Codec, Event, UnknownEvent

log = logging.getLogger("penstock.decider")

MALFORMED = (ValueError, RecursionError)
"""Raised by decoding: no JSON, wrong types, text that is no UTF-8, nesting that is too deep."""


def read(codec: Codec, stored: Stored) -> Event | None:
    """The event in a message; None, with a log line, if it holds none of this version."""
    try:
        event = codec.decode(stored.body)
    except MALFORMED as error:
        skip(stored, str(error))
        return None
    if isinstance(event, UnknownEvent):
        log.info("skipped %s: a %s is of a later version", stored.subject, event.type)
        return None
    return event


def skip(stored: Stored, why: str) -> None:
    log.warning("skipped %s, message %d: %s", stored.subject, stored.sequence, why)
