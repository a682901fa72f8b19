"""Which queues the default pool takes: those that hold jobs and that no pool names."""

from __future__ import annotations

import logging

from penstock.bus.protocol import Bus
from penstock.config import Settings
from penstock.config.serving import serving
from penstock.events.subjects import BadName, Subjects, check_name

log = logging.getLogger("penstock.jobs")

DISCOVER_SECONDS = 1.0
"""Time between two looks; so much later the first job of a new queue may start."""
MOST_QUEUES = 200
"""Queues taken at a time. Each is asked for by itself, and anyone who dispatches can make one."""


class QueueDiscovery:
    """Looks for queues of the default pool."""

    def __init__(self, bus: Bus, settings: Settings) -> None:
        self._bus, self._subjects = bus, Subjects(settings.prefix)
        self._serving = serving(settings)
        self._has_warned = False

    async def queues(self) -> list[str]:
        """The queues that hold jobs now, by name, at most ``MOST_QUEUES``. Raises BusError."""
        held = await self._bus.count(self._subjects.jobs_stream, self._subjects.queue("*"))
        names = (subject.rpartition(".")[2] for subject in held)
        queues = sorted(name for name in names if self._serving.is_discovered(name) and _fits(name))
        if len(queues) > MOST_QUEUES and not self._has_warned:
            self._has_warned = True
            log.warning(
                "%d queues that no pool names hold jobs; the default pool takes %d at a time",
                len(queues),
                MOST_QUEUES,
            )
        return queues[:MOST_QUEUES]


def _fits(name: str) -> bool:
    try:
        check_name("queue", name)
    except BadName:  # not made by a client of ours
        return False
    return True
