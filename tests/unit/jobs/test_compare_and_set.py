"""One loop for all who read, change and write: another writer may come in between."""

from __future__ import annotations

import pytest

from penstock.jobs import JobRefused
from penstock.jobs.event_store.compare_and_set import TRIES, compare_and_set


class Record:
    """A number and its sequence; ``rivals`` other writers each come between a read and a write."""

    def __init__(self, rivals: int) -> None:
        self.value, self.sequence, self.rivals = 0, 1, rivals

    async def read(self) -> tuple[int, int]:
        return self.value, self.sequence

    async def put(self, value: int, expected: int) -> int | None:
        if self.rivals:
            self.rivals, self.value, self.sequence = self.rivals - 1, 100, self.sequence + 1
        if expected != self.sequence:
            return None
        self.value, self.sequence = value, self.sequence + 1
        return value


async def increment(record: Record, tries: int = TRIES) -> int:
    async def change(state: tuple[int, int]) -> int | None:
        value, sequence = state
        return await record.put(value + 1, sequence)

    return await compare_and_set(record.read, change, "record r", tries)


async def test_a_change_is_based_on_what_was_read_last() -> None:
    assert await increment(Record(rivals=0)) == 1
    assert await increment(Record(rivals=3)) == 101


async def test_who_loses_each_time_is_refused() -> None:
    with pytest.raises(JobRefused, match="record r changes too quickly; try again"):
        await increment(Record(rivals=TRIES))
    with pytest.raises(JobRefused):
        await increment(Record(rivals=2), tries=2)


async def test_an_error_of_the_change_ends_it() -> None:
    async def change(_: tuple[int, int]) -> int | None:
        raise KeyError("gone")

    with pytest.raises(KeyError):
        await compare_and_set(Record(0).read, change, "record r")
