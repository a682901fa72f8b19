"""The life of a worker as its executor sees it: one table, a reason on each edge."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Phase(StrEnum):
    """Where a worker stands. `STARTING`, `IDLE` and `BUSY` count against the plan."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    DRAINING = "draining"
    STOPPED = "stopped"


EDGES: Final[Mapping[tuple[Phase, Phase], str]] = {
    (Phase.STARTING, Phase.IDLE): "asked for its first job",
    (Phase.STARTING, Phase.BUSY): "sent its first report with a job",
    (Phase.STARTING, Phase.DRAINING): "no longer wanted before it was ready",
    (Phase.STARTING, Phase.STOPPED): "ended before it was ready",
    (Phase.IDLE, Phase.BUSY): "took a job",
    (Phase.BUSY, Phase.IDLE): "finished its job",
    (Phase.IDLE, Phase.DRAINING): "is ending, without a job",
    (Phase.BUSY, Phase.DRAINING): "is ending after its job",
    (Phase.IDLE, Phase.STOPPED): "ended unasked, without a job",
    (Phase.BUSY, Phase.STOPPED): "ended unasked, with a job",
    (Phase.DRAINING, Phase.STOPPED): "drained, or was killed while draining",
}
"""Every move there is. The docs' diagram and the tests are made from this table."""

ACTIVE: Final = frozenset({Phase.STARTING, Phase.IDLE, Phase.BUSY})
READY: Final = frozenset({Phase.IDLE, Phase.BUSY})
