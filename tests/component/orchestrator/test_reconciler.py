"""Reconciling over the bus in memory: what an orchestrator stores again."""

from __future__ import annotations

from penstock.config.load import check
from penstock.events.subjects import Subjects
from penstock.jobs import Client, job
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
