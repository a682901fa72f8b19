"""Times of rows as datetimes. Pure."""

from __future__ import annotations

from datetime import UTC, datetime


def instant(micros: int) -> datetime:
    """The time, UTC, of microseconds since 1970."""
    return datetime.fromtimestamp(micros / 1_000_000, UTC)


def instant_or_none(micros: int | None) -> datetime | None:
    """The same; None stays None."""
    return None if micros is None else instant(micros)
