"""How far leadership has come: what tells a command of a leader from one that is forged."""

from __future__ import annotations

from penstock.bus.protocol import Bus
from penstock.events.subjects import Subjects


async def reached(bus: Bus, subjects: Subjects) -> int | None:
    """No leader's epoch lies beyond this, since epochs are sequences of the deciders' lease.

    None where nobody has led yet. Raises BusError.
    """
    stored = await bus.last(subjects.state_stream, subjects.state("lease", "decider"))
    return stored.sequence if stored else None
