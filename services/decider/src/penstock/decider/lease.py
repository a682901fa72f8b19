"""Leadership of the deciders: a lease whose records also teach the broker's time.

What makes two leaders harmless is that the record, and every command, is appended by
compare-and-set.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.bus.clock import BrokerClock
from penstock.bus.protocol import Bus
from penstock.events.subjects import Subjects
from penstock.runtime import lease
from penstock.runtime.lease import LeaseRecord, Term

__all__ = ["Lease", "LeaseRecord", "Term"]


class Lease(lease.Lease):
    """See :class:`penstock.runtime.lease.Lease`.

    Args:
        clock: learns the broker's time from the record's time stamps.
    """

    def __init__(
        self,
        bus: Bus,
        subjects: Subjects,
        holder: str,
        lease_seconds: float,
        *,
        clock: BrokerClock | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        subject = subjects.state("lease", "decider")
        stream = subjects.state_stream
        super().__init__(bus, stream, subject, holder, lease_seconds, monotonic=monotonic)
        self._clock = clock or BrokerClock()

    async def _stored(self, sequence: int, began: float) -> None:
        answered = self._monotonic()
        stored = await self._bus.last(self._stream, self._subject)
        if stored is not None and stored.sequence == sequence:
            self._clock.learn(stored.at.timestamp(), began, answered)
