"""One worker as its executor knows it; its life is one table, with a reason on each edge."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from penstock.events.worker import Claim

_HISTORY_LENGTH = 8


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


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker; all times are monotonic seconds of the executor.

    Attributes:
        cause: ``planned``, ``respawn``, ``reloaded`` or ``adopted``.
        requested_at: when its start was decided.
        commanded_at: when the command behind it came; None for an adopted one.
        together: how many were starting at the same time, this one included.
        pid: None until it is forked.
        ready_at: None until it asked for a job.
        reported_at: when it last reported.
        computed_at: when it last used its processor although it could not report.
        claims: what it held at its last report; of many, those that it claimed first.
        slots: how many jobs it runs at a time.
        slots_used: how many it ran at its last report.
        jobs_done: jobs that it ran to an end, by its reports.
        build: version of its job code, by its own report; empty before.
        stopping_because: why it stops, by its own report; empty while it does not.
        paused: it takes no jobs for now.
        pause_requested_at: when it was last asked to pause.
        outdated: it has an older version of the job code, or older settings, and is replaced.
        ending_because: why the executor asked it to end: ``scaled-down``, ``shutdown``,
            ``reloaded``, ``drained``, ``lost``, ``stuck``, ``memory-limit`` or ``limit``; empty
            when it did not.
        ending_detail: more about that, for people.
        drain_deadline: when it is killed if it still runs; None when it was not asked to end.
        drain_seconds: of a process of another system, how long it may take to end; None of others.
        history: its last moves: when, to what, why.
    """

    name: str
    pool: str
    cause: str
    requested_at: float
    commanded_at: float | None = None
    together: int = 1
    phase: Phase = Phase.STARTING
    pid: int | None = None
    ready_at: float | None = None
    reported_at: float | None = None
    computed_at: float = 0.0
    claims: tuple[Claim, ...] = ()
    slots: int = 1
    slots_used: int = 0
    jobs_done: int = 0
    build: str = ""
    stopping_because: str = ""
    paused: bool = False
    pause_requested_at: float = -math.inf
    outdated: bool = False
    ending_because: str = ""
    ending_detail: str = ""
    drain_deadline: float | None = None
    drain_seconds: float | None = None
    killed: bool = False
    history: tuple[tuple[float, str, str], ...] = ()

    @property
    def active(self) -> bool:
        """Counts against the plan: it exists, or is about to, and was not asked to end."""
        return self.phase in ACTIVE

    @property
    def ready(self) -> bool:
        return self.phase in READY

    @property
    def is_foreign(self) -> bool:
        """A consumer of another system: it takes no jobs, and knows none of our signals."""
        return self.drain_seconds is not None

    @property
    def job_id(self) -> str | None:
        """The job it runs: of what it holds, the one that has run longest."""
        running = max(self.claims, key=lambda claim: claim.running_seconds, default=None)
        return running.job_id if running else None


class IllegalMove(RuntimeError):
    """A bug here: a worker was moved along an edge that does not exist. Carries its history."""


def move(worker: Worker, to: Phase, now: float) -> Worker:
    """``worker`` in its next phase.

    Args:
        now: monotonic seconds.

    Raises:
        IllegalMove: there is no such edge.
    """
    reason = EDGES.get((worker.phase, to))
    if reason is None:
        so_far = "; ".join(f"{at:.3f} {phase}: {why}" for at, phase, why in worker.history)
        raise IllegalMove(
            f"worker {worker.name} cannot go from {worker.phase} to {to}; its history: {so_far}"
        )
    history = (*worker.history, (now, str(to), reason))[-_HISTORY_LENGTH:]
    return replace(worker, phase=to, history=history)
