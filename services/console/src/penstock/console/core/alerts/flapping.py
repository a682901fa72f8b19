"""Whether an alert comes and goes so often that its messages say nothing. Pure.

Nagios counts changes among the last 21 checks. Here a slot of a minute stands for a check, so that
the answer does not depend on how often is looked.
"""

from __future__ import annotations

SLOT_SECONDS = 60.0
SLOTS = 21
ON_SHARE, OFF_SHARE = 0.5, 0.25


def slot(at: float) -> int:
    """The slot that a time belongs to."""
    return int(at // SLOT_SECONDS)


def with_change(changes: tuple[int, ...], at: float) -> tuple[int, ...]:
    """The slots with a change, those of late, after one more."""
    now = slot(at)
    return tuple(sorted({one for one in (*changes, now) if now - one < SLOTS}))


def share(changes: tuple[int, ...], at: float) -> float:
    """Share of the last 21 slots that had a change."""
    return sum(0 <= slot(at) - one < SLOTS for one in changes) / SLOTS


def flaps(changes: tuple[int, ...], at: float, *, is_flapping: bool) -> bool:
    """Whether it flaps now: on at half of the slots, off below a quarter."""
    return share(changes, at) >= (OFF_SHARE if is_flapping else ON_SHARE)


def next_slot(at: float) -> float:
    """When the next slot begins."""
    return (slot(at) + 1) * SLOT_SECONDS
