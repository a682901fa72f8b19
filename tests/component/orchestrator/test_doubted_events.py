"""Events of workflows that came when none was expected, many of them at one moment."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.bus.protocol import Expect, Outgoing, Stored
from penstock.events.envelope import encode
from penstock.events.job import JobCompleted, JobStarted
from penstock.events.subjects import Subjects
from penstock.orchestrator.workflows.suspended import doubted_events
from penstock.orchestrator.workflows.suspended.doubted_events import DoubtedEvents
from penstock.testing.memory.bus import MemoryBus

SUBJECTS = Subjects("penstock")


class Slow(MemoryBus):
    """Further events come while it answers."""

    def __init__(self) -> None:
        super().__init__()
        self.doubts = DoubtedEvents(self, SUBJECTS)

    async def last_of(
        self, stream: str, subjects: Sequence[str], before: int = 0
    ) -> dict[str, Stored]:
        answer = await super().last_of(stream, subjects, before)
        if not self.stored(stream, SUBJECTS.job("later")):
            await self.doubt("later")
            self.doubts.forget("over")
        return answer

    async def doubt(self, job_id: str) -> None:
        """One that completed behind its start, and when that was not expected."""
        tree = SUBJECTS.job(job_id)
        started = JobStarted(
            job_id=job_id, source="test", queue="q", attempt=1, host="h", worker="w"
        )
        start = await self.append(Outgoing(SUBJECTS.event(started), encode(started), {}, None))
        ended = JobCompleted(
            job_id=job_id, source="test", queue="q", attempt=1, run_seconds=0.0, result=b"\xc0"
        )
        await self.append(Outgoing(SUBJECTS.event(ended), encode(ended), {}, Expect(start, tree)))
        [stored] = self.stored(SUBJECTS.events_stream, SUBJECTS.event(ended))
        self.doubts.add(ended, stored)


async def test_what_comes_while_others_are_looked_into_is_looked_into_next() -> None:
    bus = Slow()
    await bus.doubt("first")
    await bus.doubt("over")

    proven, others = await bus.doubts.proven()
    assert [one.event.key for one in proven] == ["first"]
    assert not others

    proven, _ = await bus.doubts.proven()
    assert [one.event.key for one in proven] == ["later"]
    assert await bus.doubts.proven() == ([], [])


async def test_of_events_that_are_too_many_the_workflows_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doubted_events, "_MOST_BYTES", 500)
    bus = Slow()
    for number in range(9):
        await bus.doubt(f"flow-{number}")
    proven, others = await bus.doubts.proven()
    looked_into = {one.event.key for one in proven}
    assert 0 < len(looked_into) < 9
    assert looked_into.isdisjoint(others)
    assert looked_into.union(others) >= {f"flow-{number}" for number in range(9)}
