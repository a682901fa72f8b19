"""Delayed jobs start at their time, once, whatever the broker and other orchestrators do."""

from __future__ import annotations

import asyncio
import statistics
from datetime import UTC, datetime, timedelta

from tests.integration.counted_jobs import count
from tests.integration.counting import QUEUE, WITHIN, Stage
from tests.making import MakeSettings

JOBS, APART = 40, timedelta(seconds=0.07)
BROKER_ALONE_SECONDS = 0.125
"""Half of 250 ms, between which it looks for what is due."""


async def test_delayed_jobs_start_at_their_time_and_once(settings: MakeSettings) -> None:
    async with Stage("nats", settings) as stage, stage.worker():
        async with stage.orchestrator(), stage.orchestrator():
            first = datetime.now(UTC) + timedelta(seconds=1)
            ids = await asyncio.gather(
                *(
                    stage.client.dispatch(count(number=n), queue=QUEUE, at=first + n * APART)
                    for n in range(JOBS)
                )
            )
            views = [await stage.client.wait(each, WITHIN) for each in ids]
        late = [
            (view.record.started_at - view.record.available_at).total_seconds()
            for view in views
            if view.record.started_at
        ]
        assert len(late) == JOBS
        assert min(late) >= -0.001, "never before its time"
        assert statistics.median(late) < BROKER_ALONE_SECONDS / 2
        depth = (await stage.bus.depths())[QUEUE]
        assert (depth.delivered, depth.waiting) == (JOBS, 0), "one message each"
