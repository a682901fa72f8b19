"""`[hosts]`: which hosts are accepted, and how many."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from penstock.config.section import Section


class Hosts(Section, frozen=True, kw_only=True):
    """Which hosts the decider and the metrics service accept.

    Attributes:
        allowed: glob patterns of host names; snapshots of other hosts are ignored. Empty: any host.
        most: hosts that are remembered at a time; snapshots of further ones are refused and logged.
    """

    allowed: tuple[str, ...] = ()
    most: Annotated[int, Meta(ge=1, le=100_000)] = 1000
