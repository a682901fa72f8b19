"""Reconciling over the bus in memory: what an orchestrator stores again."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from penstock.bus.protocol import Outgoing
from penstock.config.load import check
from penstock.events.subjects import Subjects
from penstock.jobs import Client, job
from penstock.jobs.queues import queue_messages
from penstock.orchestrator.core.unresolved import Step, Unresolved
from penstock.orchestrator.reconciling.reconciler import Reconciler
from penstock.testing.memory.bus import MemoryBus

SETTINGS = check({"pools": {"reports": {}}})
PATIENCE_SECONDS = 20.0


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
    step = Step(job_id=job_id, event="JobMoved", sequence=1, at=stored_at - 3600.0, queue="reports")
    table.see(step)
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
    step = Step(job_id=job_id, event="JobDispatched", sequence=1, at=now, queue="reports")
    table.see(replace(step, due_at=now + 3600))
    reconciler = Reconciler(bus, subjects, table)
    await reconciler.round(now + PATIENCE_SECONDS + 1.0)
    assert reconciler.completer.completed == stored_again
    assert not len(table)
