"""What the screen shows, as values: made from the recording and the board. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from examples.demonstration.figures import quantile
from examples.demonstration.load import ACTS
from examples.demonstration.recording import Recording

from penstock.config import Pool
from penstock.views.pool_board import Board, PoolRow

RECENT = 40
"""Pickups of so many last jobs are summed up on the screen."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One pool on the screen.

    Attributes:
        row: what `penstock pool ls` knows. jobs / done: so far.
        late: started later than promised. pickup_p95_seconds: of the last jobs.
    """

    row: PoolRow
    jobs: int
    done: int
    late: int
    pickup_p95_seconds: float | None


def lines(
    recording: Recording, board: Board, pools: Sequence[Pool], lease_seconds: float, now: datetime
) -> list[Line]:
    """All pools as they are now."""
    rows = board.pool_rows(pools, lease_seconds, now)
    return [_line(recording, row) for row in rows]


def act(seconds: float) -> str:
    """What goes on, so long after the first job."""
    return next((each.name for each in reversed(ACTS) if each.begins <= seconds), "curtain up")


def _line(recording: Recording, row: PoolRow) -> Line:
    stories = recording.jobs_of(row.pool)
    pickups = [pickup for story in stories if (pickup := story.pickup_seconds) is not None]
    return Line(
        row=row,
        jobs=len(stories),
        done=sum(story.ended_at is not None for story in stories),
        late=sum(pickup > row.sla_seconds for pickup in pickups),
        pickup_p95_seconds=quantile(sorted(pickups[-RECENT:]), 0.95),
    )
