"""What is too large for one event: its messages stay in the log, and hold up nothing else.

No job that was dispatched and committed within the limits is. Jobs of earlier versions may be, a
graph whose calls take all that an event may, and what a stolen key stores.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from penstock.bus.protocol import Bus, Outgoing
from penstock.events.envelope import encode
from penstock.events.health import HistoryBegins
from penstock.events.subjects import Subjects
from penstock.orchestrator.retention.window import Window

log = logging.getLogger("penstock.orchestrator")

_EVERYTHING = ">"


Name = tuple[str, str]


class Uncarried:
    """What stays, in one pass over the log: each begins with the log's first message again.

    Args:
        most_bytes: what stays at most. What comes then leaves the log and is lost: else any key
            that may store events could fill the log for good.

    Attributes:
        names: noun and id of what stays.
        bytes: what it takes.
        begins: sequence from which on messages were not looked at yet.
    """

    def __init__(self, bus: Bus, subjects: Subjects, source: str, most_bytes: int) -> None:
        self._bus, self._subjects, self._source = bus, subjects, source
        self._most_bytes = most_bytes
        self._logged: set[Name] = set()
        self.names: set[Name] = set()
        self.bytes = self.begins = 0

    def begin(self) -> None:
        """A pass begins."""
        self._logged &= self.names
        self.names, self.bytes, self.begins = set(), 0, 0

    def keep(self, names: Iterable[Name], window: Window) -> None:
        """Keeps the messages of these in the log, up to the limit, and of those kept already.

        Args:
            names: of the window, and none that stays already.
        """
        for name in [*(self.names & window.sizes.keys()), *names]:
            size = window.sizes[name]
            if self.bytes + size > self._most_bytes:
                self.names.discard(name)
                log.error(
                    "%s %s is lost: it is too large for one event, and with its messages "
                    "%d bytes would stay at the old end of the event log, at most %d may",
                    *name, self.bytes + size, self._most_bytes,
                )  # fmt: skip
                continue
            self.names.add(name)
            self.bytes += size
            if name not in self._logged:
                self._logged.add(name)
                log.error(
                    "%s %s is too large for one event: its messages stay at the old end of "
                    "the event log until it ends", *name,
                )  # fmt: skip

    async def remove(self, stream: str, window: Window) -> None:
        """Removes the window but for what stays. Raises BusError.

        Readers take a job without events for one that ended where the log no longer reaches back
        to it: where something stays at its old end, an event says from where on it is complete.
        """
        before = window.through + 1
        self.begins = before if self.names else 0
        if not self.names:
            await self._bus.remove(stream, _EVERYTHING, before)
            return
        assert window.until
        begins = HistoryBegins(source=self._source, sequence=before, since=window.until)
        await self._bus.append(Outgoing(self._subjects.event(begins), encode(begins)))
        # The broker removes a subject, or all: so one by one where something is to stay.
        for name in window.sizes.keys() - self.names:
            await self._bus.remove(stream, self._subjects.events(*name), before)
