"""What an executor can be instructed to do; values, so that a test reads as a list of them."""

from __future__ import annotations

import msgspec

from penstock.events.worker import WorkerEvent


class _Order(msgspec.Struct, frozen=True, kw_only=True):
    pass


class Start(_Order, frozen=True, kw_only=True):
    """Fork a worker. ``commanded_at``: monotonic seconds."""

    worker: str
    pool: str
    cause: str
    commanded_at: float
    together: int


class Terminate(_Order, frozen=True, kw_only=True):
    """Ask it to end: SIGTERM. It finishes its job first."""

    worker: str
    pid: int


class Pause(_Order, frozen=True, kw_only=True):
    """Have it take no more jobs: SIGUSR1. It goes on with the one that it runs."""

    worker: str


class Resume(_Order, frozen=True, kw_only=True):
    """Have it take jobs again: SIGUSR2."""

    worker: str


class Kill(_Order, frozen=True, kw_only=True):
    """End it now: SIGKILL, to it and its process group."""

    worker: str
    pid: int


class GiveBack(_Order, frozen=True, kw_only=True):
    """Return what a dead worker held to its queues.

    Attributes:
        job_ids: of the messages, in their order.
        ran: the jobs among them that ran when its process died, which lose a worker; empty where
            that was not the doing of any job.
        ended: how the worker ended, for people.
    """

    worker: str
    ack_subjects: tuple[str, ...]
    job_ids: tuple[str, ...] = ()
    ran: tuple[str, ...] = ()
    ended: str = ""


class Forget(_Order, frozen=True, kw_only=True):
    """Remove what is kept about a worker that ended."""

    worker: str


class Announce(_Order, frozen=True, kw_only=True):
    """Publish an event; its envelope (id, time, source) is the shell's to fill in."""

    event: WorkerEvent


class Note(_Order, frozen=True, kw_only=True):
    """Write a line to the log, as a warning."""

    text: str


Instruction = Start | Terminate | Pause | Resume | Kill | GiveBack | Forget | Announce | Note
