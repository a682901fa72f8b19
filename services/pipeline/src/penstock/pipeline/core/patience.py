"""Limits of restarting a failing query, in one Java and in fresh ones."""

from __future__ import annotations

import msgspec

_FIRST_SECONDS = 0.5
_LONGEST_SECONDS = 15.0
PATIENCE_SECONDS = 60.0
"""Without one batch for so long, session and Java are made anew: what broke may be theirs."""
BARREN_SESSIONS = 5
"""After so many in a row that landed nothing the run fails, so that its starter notices."""


class Trouble(msgspec.Struct, frozen=True):
    """A query's failures in a row.

    Attributes:
        since: of the first, in monotonic seconds.
        batches: that had landed then.
        count: how many.
    """

    since: float
    batches: int
    count: int = 1


def after_failure(before: Trouble | None, batches: int, now: float) -> Trouble:
    """One more failure, or the first of a row where a batch has landed since the last."""
    if before is None or batches > before.batches:
        return Trouble(now, batches)
    return Trouble(before.since, batches, before.count + 1)


def pause_seconds(trouble: Trouble, now: float) -> float | None:
    """Until the next start; None where this session has had its time."""
    if now - trouble.since >= PATIENCE_SECONDS:
        return None
    return float(min(_FIRST_SECONDS * 2 ** min(trouble.count - 1, 10), _LONGEST_SECONDS))
