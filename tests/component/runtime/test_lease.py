"""A lease as services use it: held during the work, noticed when it is free."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import pytest
from tests.waiting import eventually

from penstock.bus.protocol import FOLLOW_BATCH, BusError, Stored
from penstock.runtime.lease import Lease
from penstock.testing.memory.bus import MemoryBus

LONG_SECONDS = 60.0
"""Whoever waits for this to pass waits longer than the test."""


def lease_of(bus: MemoryBus, holder: str, lease_seconds: float = LONG_SECONDS) -> Lease:
    subject = bus.subjects.state("lease", "x")
    return Lease(bus, bus.subjects.state_stream, subject, holder, lease_seconds)


async def test_another_takes_over_at_once_from_work_that_failed() -> None:
    bus = MemoryBus()
    with suppress(ZeroDivisionError):
        async with lease_of(bus, "a").holding() as term:
            assert term.held
            assert await lease_of(bus, "b").attempt() is None
            raise ZeroDivisionError
    assert not term.held
    async with asyncio.timeout(5), lease_of(bus, "b").holding() as later:
        assert later.previous == "a"


async def test_it_is_renewed_while_the_work_goes_on() -> None:
    bus = MemoryBus()
    async with lease_of(bus, "a", 0.3).holding() as term:
        await eventually(lambda: term.sequence >= term.epoch + 3)
        assert term.held


class Interrupted(MemoryBus):
    """Its first follower is cut off."""

    is_cut_off = False

    async def follow(
        self,
        stream: str,
        subjects: Sequence[str],
        start: str | int = "new",
        most: int = FOLLOW_BATCH,
    ) -> AsyncIterator[Stored]:
        if not self.is_cut_off:
            self.is_cut_off = True
            raise BusError("cut off")
        async for stored in super().follow(stream, subjects, start, most):
            yield stored


@pytest.mark.parametrize("bus", [MemoryBus(), Interrupted()], ids=["steady", "cut off"])
async def test_who_watches_notices_a_release_at_once(bus: MemoryBus) -> None:
    first, second = lease_of(bus, "a", 6.0), lease_of(bus, "b", 6.0)  # longer than it waits
    watching = asyncio.create_task(second.watch())
    async with first.holding():
        await eventually(lambda: second.is_held)
    await eventually(lambda: not second.is_held)
    watching.cancel()
