"""Leases that their holder cannot outlive by accident: the kernel ends the process before that."""

from __future__ import annotations

from penstock.bus.protocol import Bus, Headers
from penstock.runtime.lease import Lease
from penstock.worker.running import watchdog
from penstock.worker.running.watchdog import Watchdog

_LATEST_SHARE = 0.9
"""Of the lease: successors, who saw the record later than it was sent, wait for all of it."""


class LeaseGuard:
    """Makes leases, and ends this process when one of them is not renewed.

    Args:
        holder: unique among workers.
    """

    def __init__(self, bus: Bus, holder: str, lease_seconds: float) -> None:
        self._bus, self._holder, self._lease_seconds = bus, holder, lease_seconds
        self._watchdog: Watchdog | None = None

    def lease(self, stream: str, subject: str, headers: Headers | None = None) -> Lease:
        """A lease; while it is held, this process does not live beyond it until :meth:`disarm`.

        Raises:
            ConfigError: the system has no timers that end a process (Linux has).
        """
        if self._watchdog is None:
            self._watchdog = Watchdog()
        armed = self._watchdog

        async def arm(_: int, began: float) -> None:
            armed.arm(subject, began + _LATEST_SHARE * self._lease_seconds)

        return Lease(
            self._bus,
            stream,
            subject,
            self._holder,
            self._lease_seconds,
            headers=headers,
            monotonic=watchdog.now,
            on_stored=arm,
        )

    def disarm(self, lease: Lease) -> None:
        """Nothing runs under this lease any more."""
        if self._watchdog is not None:
            self._watchdog.disarm(lease.subject)
