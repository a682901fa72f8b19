"""Jobs that become dead letters are counted by queue, whoever records it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tests.waiting import eventually

from penstock.bus.protocol import Outgoing
from penstock.config.load import check
from penstock.config.topology import pools
from penstock.events.envelope import encode
from penstock.events.job import JobDead, JobError
from penstock.metrics.core.job_totals import JobTotals
from penstock.metrics.core.pool import PoolMeter
from penstock.metrics.core.queue import Queue
from penstock.metrics.listeners import DeadListener
from penstock.testing.memory.bus import MemoryBus

SETTINGS = check({"pools": {"mails": {}}})


async def test_dead_jobs_are_counted_by_queue_and_forged_ones_stop_nothing() -> None:
    bus = MemoryBus(settings=SETTINGS)
    subjects = bus.subjects
    meter = PoolMeter("mails", [Queue("mails")], pools(SETTINGS)["mails"].profile)
    jobs = JobTotals()
    listener = DeadListener(bus.client(), subjects, {"mails": meter}, {"mails": "mails"}, jobs)
    following = asyncio.create_task(listener.follow())
    await asyncio.sleep(0)
    error = JobError(kind="poison", message="lost its worker")
    for job_id, queue in (("a", "mails"), ("b", "unserved"), ("c", "mails")):
        event = JobDead(job_id=job_id, queue=queue, error=error, function="shop.send")
        subject = subjects.event(event)
        await bus.append(Outgoing(subject, b"{"))
        await bus.append(Outgoing(subject, encode(event)))

    async def counted() -> bool:
        return meter.totals.queues["mails"].dead == 2

    await eventually(counted, 5.0, "both were counted")
    assert {key: totals.dead for key, totals in jobs.functions.items()} == {
        ("mails", "shop.send"): 2
    }
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following
