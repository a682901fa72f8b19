"""Things worth telling that are no decision: the shell makes events of them."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.events.envelope import Event


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """An event to be published: its class and its own fields, the envelope left to the shell."""

    event: type[Event]
    fields: dict[str, Any]
