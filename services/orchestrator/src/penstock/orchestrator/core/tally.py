"""How each job of a batch stands: a byte a job, so that a million of them fit. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from penstock.events.batch import Counts
from penstock.jobs.batches.slots import MemberSlots, Slot
from penstock.jobs.derived_ids import Member

SLOTS = {
    "JobDispatched": Slot.PENDING,
    "JobRevived": Slot.PENDING,
    "JobCompleted": Slot.COMPLETED,
    "JobDead": Slot.FAILED,
    "JobCancelled": Slot.CANCELLED,
}
"""What an event of a job says about how it stands."""


def may_follow(slot: Slot, event: str) -> bool:
    """Whether a job that stands like this may go on with ``event``; else the event is forged.

    Coarser than `penstock.jobs.lifecycle`: whether a job that has not ended runs is not kept here.
    """
    match slot:
        case Slot.UNKNOWN:
            return True
        case Slot.PENDING:
            return event not in ("JobDispatched", "JobRevived")
        case Slot.COMPLETED:
            return False
    return event == "JobRevived"


class PackedTally(msgspec.Struct, frozen=True):
    """A tally as it is kept: its slots by producer, compressed."""

    lanes: dict[str, bytes] = {}


class Tally:
    """The jobs of one batch by how they stand. A repeated event does not count twice."""

    def __init__(self, packed: PackedTally | None = None) -> None:
        self._slots = MemberSlots(packed.lanes if packed else None)
        self._numbers = [self._slots.count(slot) for slot in Slot]

    def put(self, member: Member, slot: Slot) -> None:
        """The job ``member`` stands like this now."""
        self._numbers[self.slot(member)] -= 1
        self._numbers[slot] += 1
        self._slots.put(member.producer, member.number, slot)

    def slot(self, member: Member) -> Slot:
        """How the job ``member`` stands."""
        return self._slots.get(member.producer, member.number)

    @property
    def counts(self) -> Counts:
        _, pending, completed, failed, cancelled = self._numbers
        return Counts(pending=pending, completed=completed, failed=failed, cancelled=cancelled)

    def pending(self, batch: str) -> Iterator[Member]:
        """The jobs that have not ended."""
        for producer, number in self._slots.members(Slot.PENDING):
            yield Member(batch, producer, number)

    def failed(self, batch: str) -> Iterator[Member]:
        """The jobs that are dead."""
        for producer, number in self._slots.members(Slot.FAILED):
            yield Member(batch, producer, number)

    def pack(self) -> PackedTally:
        return PackedTally(self._slots.pack())
