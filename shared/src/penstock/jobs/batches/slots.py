"""The state of each job of a batch, a byte a job: the rest of a batch whose events left the log.

Pure.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from enum import IntEnum

from penstock.jobs.derived_ids import MAX_JOBS, Member


class Slot(IntEnum):
    UNKNOWN = 0
    PENDING = 1
    COMPLETED = 2
    FAILED = 3
    CANCELLED = 4


_PAGE = 256
"""Jobs of a page: memory and what is stored are in proportion to the jobs that were counted."""
_MOST_BYTES = 16 * MAX_JOBS
"""Of one batch, unpacked: 1 kB of a forged event can be a megabyte of slots."""


class MemberSlots:
    """The states of a batch's jobs, by producer and number; in pages, of those with any.

    Packed, a row of pages is named by its producer and, unless it begins at number 0, by ``+`` and
    the number of its first job.

    Args:
        packed: as :meth:`pack` made it.

    Raises:
        ValueError: it cannot be read, or would be larger than any batch.
    """

    def __init__(self, packed: Mapping[str, bytes] | None = None) -> None:
        self._pages: dict[str, dict[int, bytearray]] = {}
        left = _MOST_BYTES
        for name, row in (packed or {}).items():
            slots = _unpacked(row, left)
            left -= len(slots)
            producer, _, first = name.partition("+")
            self._put_row(producer, _page_number(first), slots)

    def _put_row(self, producer: str, first_page: int, slots: bytes) -> None:
        for start in range(0, len(slots), _PAGE):
            page = slots[start : start + _PAGE]
            if page.strip(b"\0"):
                pages = self._pages.setdefault(producer, {})
                pages[first_page + start // _PAGE] = bytearray(page.ljust(_PAGE, b"\0"))

    def get(self, producer: str, number: int) -> Slot:
        """The state of one job."""
        page = self._pages.get(producer, {}).get(number // _PAGE)
        return Slot(page[number % _PAGE]) if page else Slot.UNKNOWN

    def put(self, producer: str, number: int, slot: Slot) -> None:
        """Sets the state of one job."""
        pages = self._pages.setdefault(producer, {})
        page = pages.get(number // _PAGE)
        if page is None:
            page = pages[number // _PAGE] = bytearray(_PAGE)
        page[number % _PAGE] = slot

    def count(self, slot: Slot) -> int:
        """How many jobs are in this state."""
        return sum(page.count(slot) for pages in self._pages.values() for page in pages.values())

    def members(self, slot: Slot) -> Iterator[tuple[str, int]]:
        """Producer and number of the jobs in this state, in order."""
        for producer, number, row in self._rows():
            index = row.find(slot)
            while index >= 0:
                yield producer, number + index
                index = row.find(slot, index + 1)

    def pack(self) -> dict[str, bytes]:
        """All of it, compressed."""
        return {
            f"{producer}+{first}" if first else producer: zlib.compress(row.rstrip(b"\0"), 1)
            for producer, first, row in self._rows()
        }

    def _rows(self) -> Iterator[tuple[str, int, bytes]]:
        """Producer, number of the first job, and the slots of pages that follow each other."""
        for producer, pages in self._pages.items():
            row: list[int] = []
            for number in sorted(pages):
                if row and number != row[-1] + 1:
                    yield producer, row[0] * _PAGE, b"".join(map(pages.__getitem__, row))
                    row = []
                row.append(number)
            if row:
                yield producer, row[0] * _PAGE, b"".join(map(pages.__getitem__, row))


def _unpacked(row: bytes, most: int) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        slots = decompressor.decompress(row, min(most, MAX_JOBS) + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(slots) > min(most, MAX_JOBS) or not decompressor.eof:
        raise ValueError(
            f"found more than {MAX_JOBS:,} jobs of a producer, or {_MOST_BYTES:,} in all"
        )
    return slots


def _page_number(first: str) -> int:
    """Of the job that a packed row begins with."""
    if not first:
        return 0
    number = int(first) if first.isdecimal() and len(first) <= len(str(MAX_JOBS)) else -1
    if number % _PAGE or not 0 <= number < MAX_JOBS:
        raise ValueError(f"found a row that begins with job {first[:80]!r}")
    return number // _PAGE


class Slots:
    """The slots of :class:`penstock.events.batch.BatchCarried`.

    Args:
        batch: id of the batch.
        packed: by producer, compressed; empty for none.
    """

    def __init__(self, batch: str, packed: Mapping[str, bytes] | None) -> None:
        self._batch = batch
        try:
            self._slots = MemberSlots(packed)
        except ValueError as error:
            raise ValueError(f"batch {batch}: its jobs cannot be read: {error}") from error

    def has_ended(self, member: Member) -> bool:
        """Whether this job had ended."""
        return self._slots.get(member.producer, member.number) > Slot.PENDING

    def ended(self) -> Iterator[tuple[Member, Slot]]:
        """The jobs that had ended, and how."""
        for slot in (Slot.COMPLETED, Slot.FAILED, Slot.CANCELLED):
            for producer, number in self._slots.members(slot):
                yield Member(self._batch, producer, number), slot
