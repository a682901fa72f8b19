"""The two kills on the way: a worker in the middle of a job, and the decider that leads."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass

import psutil
from examples.demonstration.recording import JobStory, Recording, WorkerLife
from examples.demonstration.stage import Stage

Busy = tuple[WorkerLife, JobStory]
"""A worker and the job it runs."""


@dataclass(frozen=True)
class Kill:
    """What was killed, and when (POSIX seconds).

    Attributes:
        pid: the process. pool: of a worker; empty for a decider. story: the job it ran.
        worker: the worker's id; empty for a decider.
    """

    at: float
    pid: int
    pool: str = ""
    worker: str = ""
    story: JobStory | None = None

    @property
    def name(self) -> str:
        return "worker killed" if self.worker else "leader killed"


class NothingToKill(RuntimeError):
    """Nobody was there to be killed: what was looked for."""


def busy_workers(recording: Recording, pool: str, since: float) -> list[Busy]:
    """The workers of a pool that run a job, begun before POSIX seconds ``since``, with that job."""
    living = [life for life in recording.workers_of(pool) if life.stopped_at is None]
    busy = [(life, story) for life in living if (story := recording.running_on(life.worker))]
    return [(life, story) for life, story in busy if story.starts[-1][0] <= since]


def kill_worker(busy: Sequence[Busy], now: float) -> Kill:
    """SIGKILL to the worker that began its job last: it surely still runs it.

    Raises:
        NothingToKill: nobody is busy.
    """
    if not busy:
        raise NothingToKill("expected a worker that runs a job, found none")
    life, story = max(busy, key=lambda pair: pair[1].starts[-1][0])
    _kill(life.pid)
    return Kill(now, life.pid, life.pool, life.worker, story)


def kill_leader(recording: Recording, stage: Stage, now: float) -> Kill:
    """SIGKILL to the decider that leads.

    Raises:
        NothingToKill: the leader known from the event log is no process of ours.
    """
    source = recording.leaders[-1][1].source if recording.leaders else ""
    pid = int(source.rpartition(".")[2] or 0)
    if stage.decider(pid) is None:
        raise NothingToKill(f"expected the leader to be one of our deciders, found {source!r}")
    _kill(pid)
    return Kill(now, pid)


def _kill(pid: int) -> None:
    """Raises NothingToKill when the process does not descend from this one."""
    try:
        ours = any(parent.pid == os.getpid() for parent in psutil.Process(pid).parents())
    except psutil.NoSuchProcess:
        ours = False
    if not ours:
        raise NothingToKill(f"process {pid} is not one of ours")
    os.kill(pid, signal.SIGKILL)
