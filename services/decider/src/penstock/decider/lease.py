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
from penstock.runtime.lease import Lease


def leadership(
    bus: Bus,
    subjects: Subjects,
    holder: str,
    lease_seconds: float,
    *,
    clock: BrokerClock | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> Lease:
    """The lease of the leading decider.

    Args:
        holder: unique among processes.
        clock: learns the broker's time from the time stamps of this holder's records.
        monotonic: seconds of a clock that never jumps.
    """
    stream, subject = subjects.state_stream, subjects.state("lease", "decider")

    async def learn_time(sequence: int, began: float) -> None:
        answered = monotonic()
        stored = await bus.last(stream, subject)
        if clock and stored is not None and stored.sequence == sequence:
            clock.learn(stored.at.timestamp(), began, answered)

    on_stored = learn_time if clock else None
    return Lease(
        bus, stream, subject, holder, lease_seconds, monotonic=monotonic, on_stored=on_stored
    )
