"""How many messages came between two looks at a queue."""

from __future__ import annotations

from typing import NamedTuple

from penstock.metrics.core.sources.look import SourceLook


class Arrivals(NamedTuple):
    """Messages that moved between two looks.

    ``came``: how many, below 0 where an estimate was too high before. ``exact``: counted by the
    system itself, else worked out. ``ended``: how many ended, None where neither the system nor the
    workers count them.
    """

    came: int
    exact: bool
    ended: int | None


def arrivals(before: SourceLook, after: SourceLook, reported: int | None) -> Arrivals | None:
    """Arrivals between two looks; None where the looks cannot be compared.

    They are, in this order: growth of the system's own count; growth of what waits and is claimed,
    and what ended by the system's count; the same with what the workers report as ended; without
    any of these, growth of what waits and is claimed: then not more than really came.

    Args:
        before: the look before.
        after: the latest look.
        reported: messages that workers reported as ended since then; None where none reports.
    """
    if before.epoch != after.epoch:
        return None
    ended = _growth(before.ended, after.ended)
    came = _growth(before.arrived, after.arrived)
    if ended is not None and ended < 0:
        return None
    if came is not None and came < 0 and not after.late_counters:
        return None
    ends = reported if ended is None else ended
    if ended is not None and reported is not None and not after.exact:
        ends = max(ended, reported)
    if came is not None:
        return Arrivals(came, after.exact, ends)
    held = after.waiting - before.waiting + (_growth(before.claimed, after.claimed) or 0)
    has_claims = before.claimed is not None and after.claimed is not None
    # Messages that are removed unhandled can hide arrivals, and never make them negative.
    count = max(held + (ends or 0), 0)
    return Arrivals(count, after.exact and has_claims and ended is not None, ends)


def _growth(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before
