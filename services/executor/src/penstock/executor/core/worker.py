"""One worker as its executor knows it."""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

from penstock.events.worker import Claim
from penstock.executor.core.lifecycle import ACTIVE, EDGES, READY, Phase

_STORY_LENGTH = 8


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker; all times are monotonic seconds of the executor.

    Attributes:
        cause: ``planned``, ``respawn`` or ``adopted``.
        asked_at: when its start was decided. commanded_at: when the command behind it came; None
            for an adopted one.
        together: how many were starting at the same time, this one included.
        pid: None until it is forked. ready_at: None until it asked for a job.
        heard_at: when it last reported. claims: what it held then. said: why it is ending, by its
            own word. paused: it takes no jobs for now; pause_asked_at: when it was last told to.
        computed_at: when it was last seen to work although it could not report.
        ending_because: why we asked it to end: ``scaled-down``, ``shutdown``, ``lost`` or
            ``stuck``; empty when we did not.
        drain_deadline: when it is killed if it still runs; None when we did not ask it to end.
        story: its last moves: when, to what, why.
    """

    name: str
    pool: str
    cause: str
    asked_at: float
    commanded_at: float | None = None
    together: int = 1
    phase: Phase = Phase.STARTING
    pid: int | None = None
    ready_at: float | None = None
    heard_at: float | None = None
    computed_at: float = 0.0
    claims: tuple[Claim, ...] = ()
    said: str = ""
    paused: bool = False
    pause_asked_at: float = -math.inf
    ending_because: str = ""
    drain_deadline: float | None = None
    killed: bool = False
    story: tuple[tuple[float, str, str], ...] = ()

    @property
    def active(self) -> bool:
        """Counts against the plan: it exists, or is about to, and nobody asked it to end."""
        return self.phase in ACTIVE

    @property
    def ready(self) -> bool:
        return self.phase in READY

    @property
    def job_id(self) -> str | None:
        """The job it runs: of what it holds, the one that has run longest."""
        running = max(self.claims, key=lambda claim: claim.running_seconds, default=None)
        return running.job_id if running else None


class IllegalMove(RuntimeError):
    """A bug here: a worker was moved along an edge that does not exist. Carries its story."""


def move(worker: Worker, to: Phase, now: float) -> Worker:
    """``worker`` in its next phase.

    Args:
        now: monotonic seconds.

    Raises:
        IllegalMove: there is no such edge.
    """
    reason = EDGES.get((worker.phase, to))
    if reason is None:
        so_far = "; ".join(f"{at:.3f} {phase}: {why}" for at, phase, why in worker.story)
        raise IllegalMove(
            f"worker {worker.name} cannot go from {worker.phase} to {to}; its story: {so_far}"
        )
    story = (*worker.story, (now, str(to), reason))[-_STORY_LENGTH:]
    return replace(worker, phase=to, story=story)
