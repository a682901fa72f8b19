"""How each job of a batch stands, a byte a job: what a batch whose events left the log is told by.

Pure.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from enum import IntEnum

from penstock.jobs.members import Member


class Slot(IntEnum):
    UNKNOWN = 0
    PENDING = 1
    COMPLETED = 2
    FAILED = 3
    CANCELLED = 4


class Slots:
    """The slots of :class:`penstock.events.batch.BatchCarried`.

    Args:
        lanes: by who added the jobs, compressed; empty for none.
    """

    def __init__(self, batch: str, lanes: Mapping[str, bytes] | None) -> None:
        self._batch = batch
        try:
            self._lanes = {name: zlib.decompress(slots) for name, slots in (lanes or {}).items()}
        except zlib.error as error:
            raise ValueError(f"batch {batch}: its jobs cannot be read: {error}") from error

    def has_ended(self, place: Member) -> bool:
        """Whether the job at this place had ended."""
        slots = self._lanes.get(place.lane, b"")
        return place.number < len(slots) and slots[place.number] > Slot.PENDING

    def ended(self) -> Iterator[tuple[Member, Slot]]:
        """The jobs that had ended, and how."""
        for lane, slots in self._lanes.items():
            for number, slot in enumerate(slots):
                if slot > Slot.PENDING:
                    yield Member(self._batch, lane, number), Slot(slot)
