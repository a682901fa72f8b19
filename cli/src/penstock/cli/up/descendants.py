"""All processes below this one, also those whose parent died, so that none is left behind."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Collection
from contextlib import suppress

import psutil

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """From now on, processes below us whose parent dies become our children (prctl(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def reap_adopted(own: Collection[int]) -> None:
    """Collects ended children that others started; those in ``own`` are collected elsewhere.

    A zombie would look alive to an executor that checks its record.
    """
    for child in psutil.Process().children():
        try:
            if child.pid not in own and child.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(child.pid, os.WNOHANG)
        except (psutil.NoSuchProcess, ChildProcessError):
            continue


def end_all(grace_seconds: float) -> int:
    """Ends every process below this one: TERM, then KILL after ``grace_seconds``.

    Repeats until none is left, since a process that ends may leave orphans to this one.

    Returns:
        How many were ended.
    """
    ended = 0
    while processes := psutil.Process().children(recursive=True):
        ended += len(processes)
        for process in processes:
            _send(process.terminate)
        _, stubborn = psutil.wait_procs(processes, grace_seconds)
        for process in stubborn:
            _send(process.kill)
        psutil.wait_procs(stubborn, 1.0)
        grace_seconds = 0.0
    return ended


def _send(signal: Callable[[], None]) -> None:
    with suppress(psutil.NoSuchProcess):
        signal()
