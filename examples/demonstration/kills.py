"""The two kills during the load: a worker in the middle of a job, and the decider that leads."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass

import psutil
from examples.demonstration.installation import Installation
from examples.demonstration.recording import JobStory, Recording, WorkerLife

Busy = tuple[WorkerLife, JobStory]
"""A worker and the job it runs."""


@dataclass(frozen=True)
class Kill:
    """A process that was killed; times are POSIX seconds.

    Attributes:
        at: time of the kill.
        pid: the process.
        pool: of a worker; empty for a decider.
        worker: the worker's id; empty for a decider.
        story: the job that the worker ran.
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
    """There is no process to kill."""


def busy_workers(recording: Recording, pool: str, since: float) -> list[Busy]:
    """The workers of a pool that run a job, begun before POSIX seconds ``since``, with that job."""
    living = [life for life in recording.workers_of(pool) if life.stopped_at is None]
    busy = [(life, story) for life in living if (story := recording.running_on(life.worker))]
    return [(life, story) for life, story in busy if story.starts[-1][0] <= since]


def kill_worker(busy: Sequence[Busy], now: float) -> Kill:
    """SIGKILL to the worker that began its job last: it surely still runs it.

    Raises:
        NothingToKill: no worker is busy.
    """
    if not busy:
        raise NothingToKill("expected a worker that runs a job, found none")
    life, story = max(busy, key=lambda pair: pair[1].starts[-1][0])
    _kill(life.pid)
    return Kill(now, life.pid, life.pool, life.worker, story)


def kill_leader(recording: Recording, installation: Installation, now: float) -> Kill:
    """SIGKILL to the decider that leads.

    Raises:
        NothingToKill: the leader in the event log is no process of this demo.
    """
    source = recording.leaders[-1][1].source if recording.leaders else ""
    pid = int(source.rpartition(".")[2] or 0)
    if installation.decider(pid) is None:
        raise NothingToKill(f"expected the leader to be a decider of this demo, found {source!r}")
    _kill(pid)
    return Kill(now, pid)


def _kill(pid: int) -> None:
    """Raises NothingToKill when the process does not descend from this one."""
    try:
        descends = any(parent.pid == os.getpid() for parent in psutil.Process(pid).parents())
    except psutil.NoSuchProcess:
        descends = False
    if not descends:
        raise NothingToKill(f"process {pid} does not belong to this demo")
    os.kill(pid, signal.SIGKILL)
