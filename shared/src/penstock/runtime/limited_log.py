"""Log lines that messages from outside can cause, at a rate that they cannot choose."""

from __future__ import annotations

import logging
import time

_MAX_KEYS = 1_000


class LimitedLog:
    """Logs at most one line per key and interval; the next one says how many were left out.

    Args:
        seconds: the interval.
        max_keys: keys remembered; beyond them all others share one.
    """

    def __init__(
        self, log: logging.Logger, seconds: float = 60.0, max_keys: int = _MAX_KEYS
    ) -> None:
        self._log, self._seconds, self._max_keys = log, seconds, max_keys
        self._logged_at: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def write(self, level: int, key: str, message: str, *arguments: object) -> None:
        """Logs ``message``, unless a line of this key was logged within the interval."""
        now = time.monotonic()
        if key not in self._logged_at and len(self._logged_at) >= self._max_keys:
            self._forget(now)
            if len(self._logged_at) >= self._max_keys:
                key = ""
        logged_at = self._logged_at.get(key)
        if logged_at is not None and now - logged_at < self._seconds:
            self._left_out[key] = self._left_out.get(key, 0) + 1
            return
        self._logged_at[key] = now
        if left_out := self._left_out.pop(key, 0):
            message += f" (and {left_out} like it since the last such line)"
        self._log.log(level, message, *arguments)

    def _forget(self, now: float) -> None:
        """Drops the keys whose interval has passed and that left nothing out."""
        self._logged_at = {
            key: at
            for key, at in self._logged_at.items()
            if now - at < self._seconds or key in self._left_out
        }
