"""A schedule goes with its job: a cancelled one, or a workflow that ended before its timer."""

from __future__ import annotations

import pytest

from penstock.bus.protocol import Outgoing
from penstock.events.subjects import Subjects
from penstock.jobs.queues import queue_messages
from penstock.orchestrator.core.unresolved import Step
from penstock.orchestrator.scheduling.ended_schedules import EndedSchedules
from penstock.testing.memory.bus import MemoryBus

SUBJECTS = Subjects("penstock")
JOB = "one"


def step(event: str, sequence: int, due_at: float | None = None) -> Step:
    return Step(job_id=JOB, event=event, sequence=sequence, at=0.0, due_at=due_at)


async def with_schedule(bus: MemoryBus, sequence: int) -> None:
    message = Outgoing(
        SUBJECTS.schedule("parcels", JOB),
        b"",
        {
            **queue_messages.headers(JOB, sequence, 1, {}),
            "Nats-Schedule": "@at 2999-01-01T00:00:00Z",
            "Nats-Schedule-Target": SUBJECTS.queue("parcels"),
        },
    )
    await bus.append(message)


async def is_kept(bus: MemoryBus) -> bool:
    stored = await bus.last(SUBJECTS.jobs_stream, SUBJECTS.schedule("*", JOB))
    return stored is not None


async def seen(bus: MemoryBus, *steps: Step) -> None:
    rounds = iter([True, False])

    async def pause(_: float) -> bool:
        return next(rounds)

    schedules = EndedSchedules(bus, SUBJECTS, pause)
    for one in steps:
        schedules.see(one)
    await schedules.run()


@pytest.mark.parametrize("end", ["JobCompleted", "JobDead", "JobCancelled"])
async def test_a_workflow_that_ended_leaves_no_timer(end: str) -> None:
    bus = MemoryBus()
    await with_schedule(bus, 2)
    await seen(bus, step("WorkflowAdvanced", 2, due_at=9e9), step(end, 5))
    assert not await is_kept(bus)


async def test_a_timer_of_the_next_life_stays() -> None:
    bus = MemoryBus()
    await with_schedule(bus, 7)
    await seen(bus, step("WorkflowAdvanced", 2, due_at=9e9), step("JobDead", 5))
    assert await is_kept(bus)


async def test_other_jobs_that_completed_cost_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = MemoryBus()
    asked: list[str] = []
    monkeypatch.setattr(bus, "last", lambda *args: asked.append("last"))
    await seen(bus, step("WorkflowAdvanced", 2), step("JobCompleted", 5))
    assert asked == []
