"""Whether the event log continues where rows end, and since when it is whole."""

from __future__ import annotations

from datetime import datetime

from penstock.bus.protocol import Bus
from penstock.events.subjects import Subjects
from penstock.jobs.event_store import event_log


class LogStart:
    """The beginning of the event log, as one database has seen it.

    Attributes:
        since: when the first event of the whole part was stored; None where there is none.
    """

    def __init__(self, bus: Bus, subjects: Subjects) -> None:
        self._bus, self._subjects = bus, subjects
        self._begins_at = 0
        self.since: datetime | None = None

    async def why_not_continued(self, position: int) -> str:
        """Why rows up to this event cannot be continued; empty where they can. Raises BusError."""
        extent = await self._bus.extent(self._subjects.events_stream)
        begins_at, self.since = await event_log.begins_at(self._bus, self._subjects)
        is_known = begins_at <= self._begins_at  # of what was removed, single events may be left
        self._begins_at = begins_at
        if position > extent.last:
            return "the event log was made anew"
        if position and begins_at > position + 1 and not is_known:
            removed = f"events {position + 1:,} to {begins_at - 1:,}"
            return f"{removed} were removed before this console read them"
        return ""

    @property
    def missing(self) -> str:
        """What rows lack that are folded from the first event on; empty where nothing."""
        is_whole = self._begins_at <= 1
        return "" if is_whole else f"history before event {self._begins_at:,} was removed"
