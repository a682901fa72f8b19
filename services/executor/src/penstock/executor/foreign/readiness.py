"""Whether a foreign process takes messages by now: the forms of the setting ``ready``."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from http.client import HTTPException
from pathlib import Path
from threading import Thread
from typing import NoReturn
from urllib.parse import urlsplit

import psutil

from penstock.config.foreign import Ready
from penstock.runtime.bounded_http import BoundedConnection

_HTTP_SECONDS = 1.0
_MATCH_SECONDS = 0.1
"""Of the processor, for what a process printed between two looks: a pattern such as ``(a+)+$`` can
take hours for one line, in which nothing else of the executor would run."""
_CLOCK_SECONDS = 2.0
"""A file's time and a process's come from clocks that may differ by so much."""


class SlowPattern(Exception):
    """The lines cannot be compared with the pattern in time."""


class Probe:
    """Looks for the sign of one process.

    Args:
        ready: the setting; of the kind ``file`` with its placeholders filled.
        lines: whole lines that the process has printed since the last call.
        started_at: POSIX seconds.
    """

    def __init__(self, ready: Ready, lines: Callable[[], Iterable[str]], started_at: float) -> None:
        self._ready, self._lines, self._started_at = ready, lines, started_at
        self._pattern = re.compile(ready.value) if ready.kind == "log" else None
        self._printed: list[str] = []
        self._address = _Address(ready.value) if ready.kind == "http" else None

    def is_ready(self, pids: Iterable[int], now: float) -> bool:
        """One look. An address is asked beside it: what it answered is seen by a later look.

        Lines of the output are only read here, see `has_printed_sign`.

        Args:
            pids: of the process and what it started.
            now: POSIX seconds.
        """
        match self._ready.kind:
            case "log":
                self._printed += self._lines()
                return False
            case "seconds":
                return now - self._started_at >= self._ready.seconds
            case "port":
                return any(_listens(pid, self._ready.port) for pid in pids)
            case "file":
                return _is_new(Path(self._ready.value), self._started_at)
            case "http":
                return self._address is not None and self._address.has_answered()

    def has_printed_sign(self) -> bool:
        """Whether a line that was read matches; on the main thread, which signals interrupt.

        Raises:
            SlowPattern: once; from then on no line is compared.
        """
        printed, self._printed = self._printed, []
        if self._pattern is None or not printed:
            return False
        try:
            return _any_matches(self._pattern, printed)
        except SlowPattern:
            self._pattern = None
            raise


def _any_matches(pattern: re.Pattern[str], lines: Iterable[str]) -> bool:
    """The interpreter holds its lock while it matches, and looks for signals meanwhile."""
    signal.signal(signal.SIGVTALRM, _give_up)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, _MATCH_SECONDS)
        return any(pattern.search(line) for line in lines)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)


def _give_up(*_: object) -> NoReturn:
    raise SlowPattern


def _listens(pid: int, port: int) -> bool:
    """Whether this very process does: another worker's port does not make it ready."""
    with suppress(psutil.Error, OSError):
        return any(
            socket.status == psutil.CONN_LISTEN and socket.laddr.port == port
            for socket in psutil.Process(pid).net_connections("tcp")
        )
    return False


def _is_new(path: Path, started_at: float) -> bool:
    """A file that an earlier process left behind does not count."""
    with suppress(OSError):
        return path.stat().st_mtime >= started_at - _CLOCK_SECONDS
    return False


class _Address:
    """Asks an address in a thread of its own: one that hangs delays the look at no other process.

    The thread ends within a second, and no process waits for it at its end.
    """

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self._asking: Thread | None = None
        self._has_answered = False

    def has_answered(self) -> bool:
        """With 2xx, by now; if not, it is asked again, once at a time."""
        if not self._has_answered and not (self._asking and self._asking.is_alive()):
            self._asking = Thread(target=self._ask, name="readiness", daemon=True)
            with suppress(RuntimeError):  # no more threads for now: the next look starts it
                self._asking.start()
        return self._has_answered

    def _ask(self) -> None:
        """No proxy is asked, and no redirection followed."""
        target = self._url._replace(scheme="", netloc="").geturl() or "/"
        connection = BoundedConnection(self._url.hostname or "", self._url.port)
        deadline = time.monotonic() + _HTTP_SECONDS
        with suppress(OSError, HTTPException, ValueError), closing(connection):
            self._has_answered = 200 <= connection.get(target, deadline=deadline).status < 300
