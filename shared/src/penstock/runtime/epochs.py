"""How far leadership has come: distinguishes a leader's command from a forged one."""

from __future__ import annotations

from penstock.bus.protocol import Bus
from penstock.events.subjects import Subjects


async def reached(bus: Bus, subjects: Subjects) -> int | None:
    """The epoch that no leader is beyond, since epochs are sequences of the deciders' lease.

    Returns:
        The epoch; None where no decider has led yet.

    Raises:
        BusError: the broker did not answer.
    """
    stored = await bus.last(subjects.state_stream, subjects.state("lease", "decider"))
    return stored.sequence if stored else None


class ReachedEpoch:
    """What `reached` returned, without a request for each command of one leader."""

    def __init__(self, bus: Bus, subjects: Subjects) -> None:
        self._bus, self._subjects = bus, subjects
        self._reached: int | None = None

    async def before(self, epoch: int, obeyed: int | None) -> int | None:
        """The epoch reached, for judging a command.

        Leadership does not fall behind an epoch in which a command was obeyed, unless the lease's
        stream was lost; then the next leader's epoch is another one, and the broker is asked.

        Args:
            epoch: that of the command.
            obeyed: epoch of the last command that was obeyed.

        Raises:
            BusError: the broker did not answer.
        """
        if self._reached is None or epoch != obeyed or epoch > self._reached:
            self._reached = await reached(self._bus, self._subjects)
        return self._reached
