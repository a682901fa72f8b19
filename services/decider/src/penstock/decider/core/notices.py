"""Notices: what a round publishes beside its decisions. The shell makes events of them."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.events.envelope import Event


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """An event to be published, without its envelope, which the shell adds.

    Attributes:
        event: its class.
        fields: its own fields.
    """

    event: type[Event]
    fields: dict[str, Any]
