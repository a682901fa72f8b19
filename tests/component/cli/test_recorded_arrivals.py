"""What of a pool's jobs in the event log is simulated again, whatever keys have stored there."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.bus.protocol import Outgoing
from penstock.cli.scaling import recorded_arrivals
from penstock.cli.scaling.recorded_rounds import Span
from penstock.config import Pool, Settings, topology
from penstock.config.load import check
from penstock.decider.simulator.model.load import Trace
from penstock.events.envelope import encode
from penstock.events.job import JobCompleted, JobDispatched, JobEvent, JobStarted
from penstock.events.subjects import Subjects
from penstock.testing.memory.bus import MemoryBus

BEGAN = datetime(2026, 11, 2, 9, tzinfo=UTC)
SETTINGS: Settings = check({"pools": {"emails": {"queues": ["emails"]}}})


class Log:
    """An event log whose broker's clock the test moves."""

    def __init__(self) -> None:
        self.now = BEGAN
        self.bus = MemoryBus(now=self.clock)
        self.subjects = Subjects("penstock")

    def clock(self) -> float:
        return self.now.timestamp()

    async def store(self, kind: type[JobEvent], job: str, after: float, **fields: Any) -> None:
        """An event, stored so many seconds after the one before."""
        self.now += timedelta(seconds=after)
        event = kind(job_id=job, **{"queue": "emails", **fields})
        await self.bus.append(Outgoing(self.subjects.event(event), encode(event)))

    async def dispatched(self, job: str, after: float = 1.0, **fields: Any) -> None:
        await self.store(JobDispatched, job, after, function="send", payload=b"", **fields)

    async def started(self, job: str) -> None:
        await self.store(JobStarted, job, 1.0, attempt=1, host="a", worker="w")

    async def completed(self, job: str, run_seconds: float, after: float) -> None:
        await self.store(JobCompleted, job, after, attempt=1, run_seconds=run_seconds)

    async def ran(self, job: str, seconds: float) -> None:
        await self.dispatched(job)
        await self.started(job)
        await self.completed(job, seconds, seconds)

    async def trace(self, span: Span | None = None) -> Trace | None:
        pool: Pool = topology.pools(SETTINGS)["emails"]
        return await recorded_arrivals.read(self.bus, self.subjects, span or Span(), pool)


def run_times(trace: Trace | None) -> list[float]:
    assert trace is not None
    return trace.columns[recorded_arrivals.RUN_SECONDS].tolist()


async def test_jobs_arrive_when_they_could_start_and_run_as_long_as_they_did() -> None:
    log = Log()
    await log.ran("a", 4.0)
    await log.dispatched("late", due_at=log.now + timedelta(seconds=11))
    await log.ran("b", 2.0)
    trace = await log.trace()
    assert trace is not None
    assert trace.origin == BEGAN.timestamp() + 1
    assert trace.times.tolist() == [0.0, 7.0, 16.0]
    assert run_times(trace) == [4.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "due_at", [datetime(9000, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)]
)
async def test_no_forged_due_time_stretches_the_simulated_time(due_at: datetime) -> None:
    log = Log()
    await log.ran("a", 4.0)
    await log.dispatched("forged", due_at=due_at)
    trace = await log.trace()
    assert trace is not None
    assert trace.duration_seconds <= 10


async def test_a_job_that_is_due_after_the_span_does_not_arrive_in_it() -> None:
    log = Log()
    await log.ran("a", 4.0)
    await log.dispatched("delayed", due_at=log.now + timedelta(hours=2))
    assert run_times(await log.trace(Span(until=log.now + timedelta(hours=1)))) == [4.0]
    assert run_times(await log.trace(Span(until=log.now + timedelta(hours=3)))) == [4.0, 4.0]


@pytest.mark.parametrize("run_seconds", [2e6, -1.0, 1e308])
async def test_no_forged_run_time_is_longer_than_the_job_can_have_run(run_seconds: float) -> None:
    log = Log()
    await log.ran("a", 4.0)
    await log.dispatched("forged")
    await log.started("forged")
    await log.completed("forged", run_seconds, after=3.0)
    assert run_times(await log.trace()) == [4.0, 4.0]


async def test_an_end_without_a_start_does_not_count() -> None:
    log = Log()
    await log.dispatched("forged")
    await log.completed("forged", 5.0, after=10.0)
    assert await log.trace() is None
    await log.ran("a", 4.0)
    assert run_times(await log.trace()) == [4.0, 4.0]


async def test_the_first_end_counts_and_the_last_start_before_it() -> None:
    log = Log()
    await log.dispatched("a")
    await log.started("a")
    await log.started("a")
    await log.completed("a", 5.0, after=5.0)
    await log.completed("a", 3.0, after=1.0)
    assert run_times(await log.trace()) == [5.0]
    assert all(math.isfinite(seconds) for seconds in run_times(await log.trace()))
