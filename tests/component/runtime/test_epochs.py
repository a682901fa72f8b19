"""The epoch that the deciders' lease has reached, as an executor asks for it."""

from __future__ import annotations

import pytest

from penstock.bus.protocol import Outgoing, Stored
from penstock.events.subjects import Subjects
from penstock.runtime.epochs import ReachedEpoch
from penstock.testing.memory.bus import MemoryBus


class Counted(MemoryBus):
    """Attributes: reads: how often the last message of a subject was read."""

    reads = 0

    async def last(self, stream: str, subject: str) -> Stored | None:
        self.reads += 1
        return await super().last(stream, subject)


@pytest.fixture
def subjects() -> Subjects:
    return Subjects("epochs")


@pytest.fixture
def bus(subjects: Subjects) -> Counted:
    return Counted(prefix=subjects.prefix)


async def lead(bus: Counted, subjects: Subjects) -> int:
    """A new leader's epoch."""
    return await bus.append(Outgoing(subjects.state("lease", "decider"), b"{}"))


async def test_the_commands_of_one_leader_need_one_read(bus: Counted, subjects: Subjects) -> None:
    epoch = await lead(bus, subjects)
    lease_epoch = ReachedEpoch(bus, subjects)
    assert await lease_epoch.before(epoch, None) == epoch
    for _ in range(5):
        assert await lease_epoch.before(epoch, epoch) == epoch
    assert bus.reads == 1


async def test_the_next_leader_is_looked_up(bus: Counted, subjects: Subjects) -> None:
    first = await lead(bus, subjects)
    lease_epoch = ReachedEpoch(bus, subjects)
    await lease_epoch.before(first, None)
    second = await lead(bus, subjects)
    assert await lease_epoch.before(second, first) == second


async def test_an_epoch_beyond_is_looked_up_however_often_it_is_claimed(
    bus: Counted, subjects: Subjects
) -> None:
    epoch = await lead(bus, subjects)
    lease_epoch = ReachedEpoch(bus, subjects)
    for _ in range(2):
        assert await lease_epoch.before(epoch + 9, epoch + 9) == epoch
    assert bus.reads == 2


async def test_before_the_first_leader_there_is_none(bus: Counted, subjects: Subjects) -> None:
    lease_epoch = ReachedEpoch(bus, subjects)
    assert await lease_epoch.before(1, 1) is None
