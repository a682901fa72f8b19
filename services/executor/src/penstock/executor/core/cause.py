"""Why a worker ended, as `WorkerStopped` says it."""

from __future__ import annotations

from signal import SIGALRM, SIGHUP, SIGINT, SIGKILL, SIGTERM
from typing import Final

from penstock.executor.core.worker import Worker

STRANGERS: Final = frozenset({-SIGKILL, -SIGTERM, -SIGINT, -SIGHUP})
"""Exit codes of signals that somebody sends; the others a process earns itself."""


_SAID: Final = {
    "orphaned": "orphaned",
    "limit": "limit",
    "a job did not stop": "limit",
    "asked to end": "killed",  # by somebody else: what we ask for has its own cause
    "interrupted": "killed",
}
"""How a worker's own last words begin, and what that comes to."""

UNHEALTHY: Final = frozenset({"crashed", "killed", "lost"})
"""Causes that make an early end a failed start."""


def stop_cause(worker: Worker, exit_code: int | None) -> str:
    """One of the causes of :class:`penstock.events.worker.WorkerStopped`."""
    if worker.ending_because:
        late = worker.killed and worker.ending_because not in {"lost", "stuck"}
        return "drain-deadline" if late else worker.ending_because
    if exit_code == -SIGALRM:  # its own timer: a job held the interpreter beyond its timeout
        return "limit"
    if exit_code in STRANGERS:
        return "killed"
    said = (cause for words, cause in _SAID.items() if worker.said.startswith(words))
    return next(said, "lost" if exit_code is None else "crashed")
