"""A lease that its holder cannot outlive by accident: the kernel ends the process before that."""

from __future__ import annotations

from penstock.bus.protocol import Bus, Headers
from penstock.runtime.lease import Lease
from penstock.worker.running import watchdog
from penstock.worker.running.watchdog import Watchdog

_LATEST_SHARE = 0.9
"""Of the lease: successors, who saw the record later than it was sent, wait for all of it."""


class GuardedLease(Lease):
    """A lease whose loss this process does not outlive while :attr:`dog` is armed."""

    def __init__(
        self,
        bus: Bus,
        stream: str,
        subject: str,
        holder: str,
        lease_seconds: float,
        dog: Watchdog,
        headers: Headers | None = None,
    ) -> None:
        super().__init__(
            bus, stream, subject, holder, lease_seconds, headers=headers, monotonic=watchdog.now
        )
        self.name, self.dog = subject, dog

    async def _stored(self, sequence: int, began: float) -> None:
        self.dog.arm(self.name, began + _LATEST_SHARE * self._lease_seconds)

    def calm(self) -> None:
        """Nothing runs under it any more."""
        self.dog.disarm(self.name)
