"""The leader's lease, on both buses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.buses import both
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import connect
from penstock.bus.protocol import Bus, BusUnavailable, Outgoing
from penstock.decider.lease import leadership
from penstock.events.subjects import Subjects
from penstock.runtime.lease import Lease, LeaseRecord, Term
from penstock.testing.memory.bus import MemoryBus

SECONDS = 0.6


class Clock:
    """A monotonic clock that can jump, as it does for a process that was stopped and continued."""

    def __init__(self) -> None:
        self.jumped = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.jumped


class Contest:
    """Several processes that want to lead."""

    def __init__(self, subjects: Subjects, bus: Bus) -> None:
        self.subjects, self.bus = subjects, bus
        self._tasks: list[asyncio.Task[Any]] = []

    def candidate(self, name: str, bus: Any = None, clock: Any = time.monotonic) -> Lease:
        lease = leadership(bus or self.bus, self.subjects, name, SECONDS, monotonic=clock)
        self.background(lease.watch())
        return lease

    def background(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.append(task)
        return task

    async def leads(self, lease: Lease, within: float = 3.0) -> tuple[Term, asyncio.Task[Any]]:
        """Its term, and the task that renews it."""
        term = await asyncio.wait_for(lease.campaign(), within)
        return term, self.background(lease.keep(term))

    async def record(self) -> LeaseRecord:
        subject = self.subjects.state("lease", "decider")
        stored = await self.bus.last(self.subjects.state_stream, subject)
        assert stored
        return msgspec.json.decode(stored.body, type=LeaseRecord)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.bus.close()


@pytest.fixture(params=both("nats"))
async def contest(request: pytest.FixtureRequest) -> AsyncIterator[Contest]:
    make: MakeSettings = request.getfixturevalue("settings")
    if request.param == "nats":
        bus: Bus = await connect(make())
    else:
        bus = MemoryBus(prefix=make.prefix)
    found = Contest(Subjects(make.prefix), bus)
    yield found
    await found.close()


async def test_one_leads_and_renews_and_the_others_wait(contest: Contest):
    first, second = contest.candidate("one"), contest.candidate("two")
    term, _ = await contest.leads(first)
    waiting = contest.background(second.campaign())
    renewals = {(await contest.record()).epoch}

    async def renewed() -> bool:
        subject = contest.subjects.state("lease", "decider")
        stored = await contest.bus.last(contest.subjects.state_stream, subject)
        renewals.add(stored.sequence if stored else 0)
        return len(renewals) > 5

    await eventually(renewed)
    assert term.held
    assert not waiting.done()
    assert (await contest.record()) == LeaseRecord(
        holder="one", lease_seconds=SECONDS, epoch=term.epoch
    )


async def test_a_release_lets_the_next_lead_at_once(contest: Contest):
    first, second = contest.candidate("one"), contest.candidate("two")
    term, _ = await contest.leads(first)
    waiting = contest.background(second.campaign())
    began = time.monotonic()
    await first.release(term)
    next_term: Term = await asyncio.wait_for(waiting, 3)
    assert time.monotonic() - began < SECONDS / 2
    assert next_term.epoch > term.epoch
    assert next_term.previous == "one"
    assert not term.held


async def test_a_leader_that_vanishes_is_replaced_after_a_lease(contest: Contest):
    first, second = contest.candidate("one"), contest.candidate("two")
    term, renewing = await contest.leads(first)
    waiting = contest.background(second.campaign())
    renewing.cancel()
    next_term: Term = await asyncio.wait_for(waiting, 3 * SECONDS)
    assert next_term.epoch > term.epoch
    assert not term.held, "it had stopped acting by itself before the other began"


async def test_a_leader_that_was_stopped_knows_at_once_that_it_may_not_act(contest: Contest):
    clock = Clock()
    first, second = contest.candidate("one", clock=clock), contest.candidate("two")
    term, renewing = await contest.leads(first)
    assert term.held
    clock.jumped = SECONDS  # SIGSTOP … SIGCONT
    assert not term.held
    await asyncio.wait_for(renewing, 3)  # and its renewal does not revive the term
    assert term.ended.is_set()
    await contest.leads(second)


async def test_a_deposed_leader_cannot_renew_and_cannot_release_anothers_lease(contest: Contest):
    first, second = contest.candidate("one"), contest.candidate("two")
    term, renewing = await contest.leads(first)
    renewing.cancel()
    await contest.leads(second)
    term.extend(time.monotonic() + 60)  # it believes that it still leads
    await first.release(term)
    assert (await contest.record()).holder == "two"
    again = contest.background(first.keep(term))
    await asyncio.wait_for(again, 3)
    assert (await contest.record()).holder == "two"


async def test_an_answer_that_was_lost_does_not_cost_the_lease(contest: Contest):
    class Forgetful:
        """Stores and then says that it could not be reached."""

        def __init__(self) -> None:
            self.lose = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(contest.bus, name)

        async def append(self, message: Outgoing) -> int:
            sequence = await contest.bus.append(message)
            if self.lose:
                self.lose -= 1
                raise BusUnavailable("the answer was lost")
            return sequence

    bus = Forgetful()
    term, renewing = await contest.leads(contest.candidate("one", bus))
    bus.lose = 1
    sequence = term.sequence
    await eventually(lambda: not bus.lose and term.sequence > sequence + 1)
    assert term.held
    assert not renewing.done()


async def test_who_was_first_in_a_race_leads(contest: Contest):
    candidates = [contest.candidate(f"c{number}") for number in range(5)]
    races = [contest.background(each.campaign()) for each in candidates]
    done, pending = await asyncio.wait(races, return_when=asyncio.FIRST_COMPLETED, timeout=3)
    assert len(done) == 1
    assert len(pending) == 4


async def test_something_else_in_the_leases_place_is_replaced_after_a_lease(contest: Contest):
    await contest.bus.append(Outgoing(contest.subjects.state("lease", "decider"), b"{nonsense"))
    term, _ = await contest.leads(contest.candidate("one"))
    assert term.held


async def test_the_holder_itself_does_not_wait_for_its_old_lease(contest: Contest):
    lease = contest.candidate("one")
    term, renewing = await contest.leads(lease)
    renewing.cancel()
    next_term, _ = await contest.leads(lease, within=SECONDS / 2)
    assert next_term.epoch > term.epoch
