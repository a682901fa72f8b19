"""Reconciling over the bus in memory: what an orchestrator stores again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from penstock.bus.protocol import Expect, Outgoing
from penstock.config.load import check
from penstock.events.envelope import encode
from penstock.events.subjects import Subjects
from penstock.events.workflow import WorkflowResumed
from penstock.jobs import Client, State, WorkflowContext, job, workflow
from penstock.jobs.queues import queue_messages
from penstock.orchestrator.core.unresolved import Step, Unresolved
from penstock.orchestrator.reconciling.reconciler import Reconciler
from penstock.orchestrator.reconciling.transitions import step
from penstock.testing import Bench
from penstock.testing.memory.bus import MemoryBus

SETTINGS = check({"pools": {"reports": {}}})
PATIENCE_SECONDS = 20.0
YEARS = (1970, 2026, 2036)


@job(queue="reports")
def rebuild() -> None: ...


async def test_an_orchestrator_finds_what_an_earlier_one_stored_again() -> None:
    bus, subjects = MemoryBus(), Subjects(SETTINGS.prefix)
    client = Client(bus, prefix=SETTINGS.prefix)
    job_id = await client.dispatch(rebuild())
    message = await bus.next(subjects.jobs_stream, subjects.queue("reports"), 1)
    assert message
    stored_at = message.at.timestamp()
    table = Unresolved(PATIENCE_SECONDS, 10)  # the event is an hour older than its message
    lost = Step(job_id=job_id, event="JobMoved", sequence=1, at=stored_at - 3600.0, queue="reports")
    table.see(lost)
    reconciler = Reconciler(bus, subjects, table)
    await reconciler.round(stored_at + 1.0)
    assert reconciler.completer.completed == 0
    stored = await bus.history(subjects.jobs_stream, subjects.queue("reports"))
    assert [one.sequence for one in stored] == [message.sequence]
    assert len(table) == 1


@pytest.mark.parametrize(("sequence", "stored_again"), [("1", 0), ("0", 1), ("", 1), ("x", 1)])
async def test_a_schedule_of_an_earlier_step_is_no_schedule_of_this_one(
    sequence: str, stored_again: int
) -> None:
    bus, subjects = MemoryBus(), Subjects(SETTINGS.prefix)
    job_id = await Client(bus, prefix=SETTINGS.prefix).dispatch(rebuild(), delay=3600)
    subject = subjects.schedule("reports", job_id)
    schedule = await bus.last(subjects.jobs_stream, subject)
    assert schedule
    headers = {**schedule.headers, queue_messages.SEQUENCE: sequence}
    await bus.append(Outgoing(subject, schedule.body, headers))
    now = schedule.at.timestamp()
    table = Unresolved(PATIENCE_SECONDS, 10)
    lost = Step(job_id=job_id, event="JobDispatched", sequence=1, at=now, queue="reports")
    table.see(replace(lost, due_at=now + 3600))
    reconciler = Reconciler(bus, subjects, table)
    await reconciler.round(now + PATIENCE_SECONDS + 1.0)
    assert reconciler.completer.completed == stored_again
    assert not len(table)


@workflow(queue="reports")
async def waits(ctx: WorkflowContext) -> None:
    await ctx.sleep(timedelta(minutes=1))


@pytest.mark.parametrize("due_at", [None, *(datetime(year, 1, 2, tzinfo=UTC) for year in YEARS)])
@pytest.mark.parametrize("queue", ["reports", "elsewhere", "no queue"])
async def test_the_time_and_queue_that_an_event_of_a_client_names_do_not_count(
    due_at: datetime | None, queue: str
) -> None:
    """Given a workflow that a client resumed without its timer, by whatever event."""
    bench = Bench(SETTINGS)
    bus, subjects = bench.bus, bench.bus.subjects
    run = await bench.start(waits())
    await run.run(until="sleep")
    resumed = WorkflowResumed(job_id=run.id, queue=queue, due_at=due_at)
    expect = Expect(run.view.job.record.sequence, subjects.job(run.id))
    sequence = await bus.append(Outgoing(subjects.event(resumed), encode(resumed), {}, expect))
    table = Unresolved(PATIENCE_SECONDS, 10)
    reconciler = Reconciler(bus, subjects, table)
    for stored in bus.stored(subjects.events_stream, subjects.events("job", run.id, "*")):
        if (seen := step(stored)) is not None:
            table.see(seen)
    looks_at = bus.now() + PATIENCE_SECONDS + 1.0
    await reconciler.round(looks_at)
    await reconciler.round(looks_at + 1.0)
    schedule = await bus.last(subjects.jobs_stream, subjects.schedule("reports", run.id))
    assert schedule
    assert schedule.headers[queue_messages.SEQUENCE] == str(sequence)
    await run.run()
    assert run.state is State.COMPLETED
