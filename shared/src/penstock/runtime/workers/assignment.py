"""What a new worker is to do: the executor writes it, the warm parent hands it to the fork."""

from __future__ import annotations

import msgspec

from penstock.config import Settings


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one worker needs to know.

    Attributes:
        worker: its id, unique over all hosts and restarts.
        queues: of its pool, in priority order.
        run_dir: the executor's folder: lock, Spark's socket, records of living workers.
        settings: the executor's own, as they were checked at its start.
        commanded_at: POSIX seconds when the command that led to it was received.
        together: how many workers this host was starting at the same time, this one included.
        cause: ``planned`` or ``respawn``.
        started_with: a digest of those settings that matter to a worker of this pool.
        burst: it ends when nothing waits in its queues.
        headers: trace context, so that the worker's first job joins the trace of the scaling.
    """

    worker: str
    host: str
    pool: str
    queues: tuple[str, ...]
    run_dir: str
    settings: Settings
    commanded_at: float
    together: int = 1
    cause: str = "planned"
    started_with: str = ""
    burst: bool = False
    headers: dict[str, str] = {}
