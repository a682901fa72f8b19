"""The rows of the screen, from the recording and the board. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from examples.demonstration.figures import quantile
from examples.demonstration.load import PHASES
from examples.demonstration.recording import Recording

from penstock.config import Pool
from penstock.views.pool_board import Board, PoolRow

RECENT = 40
"""The screen shows the pickup times of so many last jobs."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One pool on the screen.

    Attributes:
        row: the row of `penstock pool ls`.
        jobs: dispatched so far.
        done: ended so far.
        late: jobs that started later than promised.
        pickup_p95_seconds: of the last jobs.
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


def phase(seconds: float) -> str:
    """The phase of the load, so many seconds after the first job."""
    return next(
        (present.name for present in reversed(PHASES) if present.begins <= seconds), "starting"
    )


def _line(recording: Recording, row: PoolRow) -> Line:
    jobs = recording.jobs_of(row.pool)
    pickups = [pickup for job in jobs if (pickup := job.pickup_seconds) is not None]
    return Line(
        row=row,
        jobs=len(jobs),
        done=sum(job.ended_at is not None for job in jobs),
        late=sum(pickup > row.sla_seconds for pickup in pickups),
        pickup_p95_seconds=quantile(sorted(pickups[-RECENT:]), 0.95),
    )
