"""The kernel ends this process at a time that was set: also when it is stopped or stuck in C.

No thread of a stopped process runs, and none of Python's while C code holds the interpreter. The
timers of the kernel need neither: their SIGKILL strikes a stopped process too (timer_create(2),
signal(7)). They go on while the machine sleeps (CLOCK_BOOTTIME), and are set to a moment, not to a
length of time, so that a stop between reckoning and setting does not put it off.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time

from penstock.config import ConfigError

_TIMER_ABSTIME = 1
_CLOCK_BOOTTIME = 7
_FAR_SECONDS = 1e9


class _Event(ctypes.Structure):
    """``struct sigevent``: 64 bytes."""

    _fields_ = [
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("padding", ctypes.c_char * 48),
    ]


class _Times(ctypes.Structure):
    """``struct itimerspec``."""

    _fields_ = [
        ("every_seconds", ctypes.c_long),
        ("every_nanoseconds", ctypes.c_long),
        ("at_seconds", ctypes.c_long),
        ("at_nanoseconds", ctypes.c_long),
    ]


def now() -> float:
    """Seconds of the clock of the deadlines."""
    return time.clock_gettime(_CLOCK_BOOTTIME)


class Watchdog:
    """Deadlines of this process, by name; the first that passes is its end.

    Args:
        number: the signal. Only SIGKILL strikes a stopped process before it goes on.

    Raises:
        ConfigError: the system has no such timers (Linux has).
    """

    def __init__(self, number: signal.Signals = signal.SIGKILL) -> None:
        self._deadlines: dict[str, float] = {}
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = ctypes.c_void_p()
        event, timer = _Event(signal=number), ctypes.byref(self._timer)
        create = getattr(self._libc, "timer_create", None)
        if create is None or create(_CLOCK_BOOTTIME, ctypes.byref(event), timer):
            why = os.strerror(ctypes.get_errno()) if create else "there is no timer_create"
            raise ConfigError(f"a job cannot be guarded on this system, it needs Linux: {why}")

    def arm(self, name: str, at: float) -> None:
        """This process does not live beyond ``at`` (seconds of :func:`now`)."""
        self._deadlines[name] = at
        self._set()

    def disarm(self, name: str) -> None:
        if self._deadlines.pop(name, None) is not None:
            self._set()

    def _set(self) -> None:
        first = min(self._deadlines.values(), default=0.0)  # 0 stops the timer
        seconds = int(min(first, now() + _FAR_SECONDS))
        times = _Times(at_seconds=seconds, at_nanoseconds=int((first - int(first)) * 1e9))
        if self._libc.timer_settime(self._timer, _TIMER_ABSTIME, ctypes.byref(times), None):
            raise OSError(ctypes.get_errno(), "timer_settime")
