"""Ends workers that their executor left behind and that cannot see to their own end.

A worker without an executor ends by itself (`penstock.worker.orphan`), unless no thread of it runs:
its process is stopped, or C code holds the interpreter. No process keeps the claims of such a
worker, so that its jobs are others' by now. Its warm parent outlives the executor to kill it.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from penstock.runtime.file_lock import EXECUTOR_LOCK, is_held
from penstock.runtime.workers import pulse
from penstock.runtime.workers.assignment import Assignment

log = logging.getLogger("penstock.worker.warm_parent")

_LOOK_SECONDS = 0.5


def watch(workers: Mapping[int, Assignment], reap: Callable[[], object]) -> None:
    """Returns when no worker is left, or another executor has come.

    Args:
        workers: the living children of this process, by process id.
        reap: collects those that ended, and removes them from ``workers``.
    """
    began = time.monotonic()
    had_executor = False
    while True:
        reap()
        has_executor = any(_has_executor(assignment) for assignment in workers.values())
        # Once is not enough: a dying process closes its sockets before its locks, in this order.
        if not workers or (has_executor and had_executor):
            return
        had_executor = has_executor
        now = time.monotonic()
        for pid, assignment in workers.items():
            if now - began >= assignment.settings.host.orphan_grace_seconds and _is_stuck(
                assignment, now
            ):
                log.error("worker %s has no executor and does not run: killed", assignment.worker)
                os.kill(
                    pid, signal.SIGKILL
                )  # a child that is not reaped: no other process has its id
        time.sleep(_LOOK_SECONDS)


def _has_executor(assignment: Assignment) -> bool:
    return is_held(Path(assignment.run_dir) / EXECUTOR_LOCK)


def _is_stuck(assignment: Assignment, now: float) -> bool:
    """Whether its loop has not looked after its claims for longer than these last."""
    settings = assignment.settings
    patience = max(settings.host.orphan_grace_seconds, settings.jobs.claim_seconds)
    beat_at = pulse.beat_at(Path(assignment.run_dir), assignment.worker)
    return beat_at is None or now - beat_at >= patience
