"""Why a worker ended, as `WorkerStopped` reports it."""

from __future__ import annotations

from signal import SIGALRM, SIGHUP, SIGINT, SIGKILL, SIGTERM, Signals
from typing import Final

from penstock.executor.core.worker import Worker

SENT_SIGNALS: Final = frozenset({-SIGKILL, -SIGTERM, -SIGINT, -SIGHUP})
"""Exit codes of signals that users and tools send; the others a process causes itself."""


_LAST_REPORTS: Final = {
    "orphaned": "orphaned",
    "limit": "limit",
    "a job did not stop": "limit",
    "asked to end": "killed",  # not by this executor, whose requests have their own cause
    "interrupted": "killed",
}
"""How a worker's last report of why it stops begins, and the cause that it stands for."""

_SIGNALS: Final = {number.value: number.name for number in Signals}


def how_it_ended(exit_code: int | None, out_of_memory: bool) -> str:
    """An exit code for people: the signal by number and name, or the code.

    Args:
        exit_code: as of ``waitpid``.
        out_of_memory: the kernel ended a process for lack of memory just before.
    """
    if exit_code is None:
        return "ended, its exit code is not known"
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    name = _SIGNALS.get(-exit_code, "unknown")
    by = " by the kernel's OOM killer" if out_of_memory and exit_code == -SIGKILL else ""
    hint = ", the job held the interpreter beyond its timeout" if exit_code == -SIGALRM else ""
    return f"was killed by signal {-exit_code} ({name}){by}{hint}"


UNHEALTHY: Final = frozenset({"crashed", "killed", "lost"})
"""Causes that make an early end a failed start."""


def stop_cause(worker: Worker, exit_code: int | None) -> str:
    """One of the causes of :class:`penstock.events.worker.WorkerStopped`."""
    if worker.ending_because:
        late = worker.killed and worker.ending_because not in {"lost", "stuck", "memory-limit"}
        return "drain-deadline" if late else worker.ending_because
    if exit_code == -SIGALRM:  # its own timer: a job held the interpreter beyond its timeout
        return "limit"
    if exit_code in SENT_SIGNALS:
        return "killed"
    reason = worker.stopping_because
    causes = (cause for words, cause in _LAST_REPORTS.items() if reason.startswith(words))
    return next(causes, "lost" if exit_code is None else "crashed")
