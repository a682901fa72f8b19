"""Liveness and readiness of a service, with reasons: `/healthz` and `/readyz`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from penstock.telemetry.meters import Reading
from penstock.telemetry.metrics import LOOP_LAG, SERVICE_CHECK

BEAT_SECONDS = 1.0
SILENT_SECONDS = 10.0
"""An event loop that has not turned for so long is stuck: a restart is worth it."""

Check = Callable[[], str]
"""The reason of a failure; empty when it passes. Called in any thread, so it only reads values."""


class Checks:
    """The checks of a service.

    Alive: its event loop turns. Ready: every check is passed. A service that lacks its broker is
    not ready, and alive: a restart would not help.
    """

    def __init__(self, service: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._service, self._monotonic = service, monotonic
        self._beat_at = monotonic()
        self._lag = 0.0
        self._checks: dict[str, Check] = {}

    def require(self, name: str, check: Check) -> None:
        """Ready only while ``check`` is passed."""
        self._checks[name] = check

    def beat(self) -> None:
        """The loop turned; called each `BEAT_SECONDS`."""
        now = self._monotonic()
        late = max(now - self._beat_at - BEAT_SECONDS, 0.0)
        # halved with each beat, so that a scrape every few seconds still sees a short stall
        self._lag, self._beat_at = max(late, self._lag / 2), now

    def stuck(self) -> str:
        """Why a restart would help; empty while the loop turns."""
        silent = self._monotonic() - self._beat_at
        if silent > SILENT_SECONDS:
            return f"the event loop has not turned for {silent:.0f} s"
        return ""

    def reasons(self) -> dict[str, str]:
        """By check, why it is not passed; empty text where it is."""
        reasons = {"loop": self.stuck()}
        for name, check in tuple(self._checks.items()):
            try:
                reasons[name] = check()
            except Exception as error:
                reasons[name] = f"the check failed: {error!r}"
        return reasons

    def readings(self) -> Iterable[Reading]:
        yield Reading(LOOP_LAG, self._lag)
        for name, reason in self.reasons().items():
            yield Reading(SERVICE_CHECK, float(not reason), (self._service, name))
