"""A worker counts, in its reports, which of its jobs it picked up later than promised."""

from __future__ import annotations

import msgspec
import pytest
from tests.component.worker.given import QUEUE, Stage, once

from penstock.config.load import check
from penstock.events.worker import QueueReport, WorkerReport
from penstock.jobs import job


@job(queue=QUEUE)
def nothing_much() -> None:
    pass


@pytest.mark.parametrize(("sla_seconds", "late"), [(1e-9, 3), (1000.0, 0)])
async def test_jobs_picked_up_after_the_promise_are_counted(sla_seconds: float, late: int) -> None:
    stage = Stage(
        check(
            {"prefix": "p", "host": {"name": "h"}, "pools": {QUEUE: {"sla_seconds": sla_seconds}}}
        )
    )
    heard: list[QueueReport] = []

    def hear(_: str, body: bytes) -> None:
        heard.extend(msgspec.json.decode(body, type=WorkerReport).queues.values())

    await stage.bus.listen(stage.subjects.worker_report("*", "*"), hear)
    ids = [await stage.client.dispatch(nothing_much()) for _ in range(3)]
    async with stage.worker():
        for each in ids:
            await stage.ended(each)
    await once(lambda: sum(report.started for report in heard) == 3, "a report of each start")
    assert sum(report.late for report in heard) == late
