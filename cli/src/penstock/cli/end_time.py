"""When an order ends that lasts for a while: of `--for 2h` and `--until TIME`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from penstock.cli.errors import Refused
from penstock.views import wording

_MOST_SECONDS = 1e9


def end_time(order: str, seconds: float | None, until: str | None) -> datetime:
    """The end of an order, in UTC.

    Args:
        order: what it is, for errors: `hold`.
        seconds: how long it lasts, or None.
        until: its end in ISO 8601, local without a zone, or None. One of the two is given.

    Raises:
        Refused: both are given, it cannot be read, or it is over.
    """
    if seconds is not None and until is not None:
        raise Refused("expected how long once: --for 2h or --until TIME, not both")
    now = datetime.now(UTC)
    if seconds is not None:
        end = now + timedelta(seconds=min(seconds, _MOST_SECONDS))
    else:
        try:
            end = datetime.fromisoformat(str(until)).astimezone(UTC)
        except (ValueError, OverflowError):
            raise Refused(
                f"found {until!r}, expected a time such as 2027-01-01T06:00+01:00"
            ) from None
    if end <= now:
        raise Refused(f"{wording.clock(end)} is over; a {order} ends in the future")
    return end
