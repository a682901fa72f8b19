"""A batch of many jobs: how long its creation takes, and whether its counts are exact. Prints JSON.

One client creates the batch while nothing runs. Then two workers and two orchestrators run it while
one job in twenty is delivered again: its message is taken and given back, and a second message of
the same job comes behind. The batch's counts are compared with a recount of the jobs' own events.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from contextlib import aclosing
from pathlib import Path
from typing import Any

import uvloop

from machine import describe
from noop_crew import at_work, settings_for
from noop_jobs import noop
from penstock.bus.nats import NatsBus, connect
from penstock.bus.protocol import Outgoing
from penstock.config import Settings
from penstock.events.job import JOB_EVENTS, JobDispatched
from penstock.events.subjects import Subjects
from penstock.jobs import Client
from penstock.jobs.queues import queue_messages
from penstock.runtime.broker import Broker

AGAIN_SHARE = 0.05


async def dispatched(bus: NatsBus, jobs: int) -> list[tuple[int, JobDispatched]]:
    """Every job as the log tells it."""
    found: list[tuple[int, JobDispatched]] = []
    pattern = Subjects().events("job", "*", "JobDispatched")
    following: Any = bus.follow(Subjects().events_stream, [pattern], "all")
    async with aclosing(following) as messages:
        async for stored in messages:
            event = JOB_EVENTS.decode(stored.body)
            assert isinstance(event, JobDispatched)
            found.append((stored.sequence, event))
            if len(found) == jobs:
                break
    return found


async def deliver_again(bus: NatsBus, jobs: list[tuple[int, JobDispatched]]) -> dict[str, int]:
    """Takes some messages and gives them back; adds a second message for others."""
    wanted = int(len(jobs) * AGAIN_SHARE)
    puller, given_back = bus.puller("bench"), 0
    while given_back < wanted:
        taken = await puller.fetch(200, 1.0)
        if not taken:
            break
        await bus.give_back([each.ack_subject for each in taken])
        given_back += len(taken)
    await puller.close()
    doubles = [
        Outgoing(
            Subjects().queue("bench"),
            event.payload,
            queue_messages.headers(event.job_id, sequence, 1, {}),
        )
        for sequence, event in random.sample(jobs, wanted)
    ]
    for start in range(0, len(doubles), 500):
        await bus.append_many(doubles[start : start + 500])
    return {"given_back": given_back, "second_messages": len(doubles)}


async def measure(settings: Settings, jobs: int) -> dict[str, Any]:
    bus = await connect(settings)
    await bus.ensure_queue("bench")
    client = Client(bus)
    began = time.perf_counter()
    batch_id = await client.batches.create(noop(number=number) for number in range(jobs))
    created = time.perf_counter() - began
    known = await dispatched(bus, jobs)
    began = time.perf_counter()
    with at_work(settings, workers=2, orchestrators=2):
        again = await deliver_again(bus, known)
        record = await client.batches.wait(batch_id)
        seconds = time.perf_counter() - began
        recount = Counter(how.value for how in (await client.batches.ended(batch_id)).values())
    counts = {name: getattr(record.counts, name) for name in ("completed", "failed", "cancelled")}
    await bus.close()
    return {
        "jobs": jobs,
        "create_seconds": round(created, 2),
        "create_per_second": round(jobs / created),
        "run_seconds": round(seconds, 2),
        "delivered_again": again,
        "state": record.state,
        "counts": counts,
        "recount": dict(recount),
        "exact": counts["completed"] == recount["completed"] == jobs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    with Broker() as broker:
        found = uvloop.run(measure(settings_for(broker.url), options.jobs))
    print(json.dumps({"benchmark": "batch", "machine": describe(), **found}, indent=2))
    sys.exit(0 if found["exact"] else 1)


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    main()
