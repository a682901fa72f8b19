"""No-op jobs through the whole path, and the pickup time of an idle worker. Prints JSON.

Each job is dispatched (event and queue message), claimed, started (compare-and-set event), run,
completed (compare-and-set event) and acknowledged: four stored messages. Dispatching runs in a
process of its own at the same time as the workers; the clock starts with the first dispatch and
stops when the last completion is stored. Broker, dispatcher and workers share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import uvloop

from machine import describe
from noop_crew import EVENTS_PER_JOB, at_work, fork, settings_for, stored_events
from noop_jobs import noop
from penstock.bus.nats import connect
from penstock.config import Settings
from penstock.events.job import JOB_EVENTS, JobStarted
from penstock.events.subjects import Subjects
from penstock.jobs import Client
from penstock.runtime.broker import Broker

WARM_JOBS = 2000
"""Before what is measured."""


def dispatch(settings: Settings, count: int) -> None:
    async def whole() -> None:
        async with Client.connect(settings) as client:
            for start in range(0, count, 5000):
                calls = [noop(number=start + i) for i in range(min(5000, count - start))]
                await client.dispatch_many(calls)

    uvloop.run(whole())


async def warm(client: Client, jobs: int) -> None:
    """Until every worker has connected and run something."""
    ids = await client.dispatch_many([noop(number=i) for i in range(jobs)])
    await client.wait(ids[-1], 60)
    await asyncio.sleep(0.5)


async def throughput(
    settings: Settings,
    broker: Broker,
    count: int,
    jobs: int,
    worker: Settings | None = None,
    orchestrator: Settings | None = None,
) -> dict[str, Any]:
    """Jobs a second through ``count`` workers.

    Args:
        settings: of the dispatcher. worker: of workers, where these have a key of their own.
        orchestrator: where given, one runs beside.
    """
    bus = await connect(settings)
    with at_work(worker or settings, count, orchestrator is not None, orchestrator) as pids:
        await warm(Client(bus), WARM_JOBS)
        assert broker.child is not None
        watched = [psutil.Process(broker.child.pid), *map(psutil.Process, pids)]
        before = [cpu_seconds(one) for one in watched]
        stored, started = await stored_events(bus), time.perf_counter()
        dispatcher = fork.Process(target=dispatch, args=(settings, jobs))
        dispatcher.start()
        while await stored_events(bus) < stored + EVENTS_PER_JOB * jobs:
            await asyncio.sleep(0.01)
        seconds = time.perf_counter() - started
        used = [cpu_seconds(one) - was for one, was in zip(watched, before, strict=True)]
        dispatcher.join()
    await bus.close()
    return {
        "jobs_per_second": round(jobs / seconds),
        "broker_cpu_us_per_job": round(used[0] / jobs * 1e6, 1),
        "worker_cpu_us_per_job": round(sum(used[1:]) / jobs * 1e6, 1),
    }


def cpu_seconds(one: psutil.Process) -> float:
    times = one.cpu_times()
    return float(times.user + times.system)


async def pickup(
    settings: Settings,
    jobs: int,
    worker: Settings | None = None,
    orchestrator: Settings | None = None,
) -> dict[str, Any]:
    """Dispatch called to JobStarted stamped, one job at a time on an idle worker."""
    bus = await connect(settings)
    client, waits = Client(bus), []
    with at_work(worker or settings, 1, orchestrator is not None, orchestrator):
        await warm(client, 10)
        for number in range(jobs):
            asked = time.time()
            job_id = await client.dispatch(noop(number=number))
            await client.wait(job_id, 10)
            for message in await bus.history(Subjects().events_stream, Subjects().job(job_id)):
                event = JOB_EVENTS.decode(message.body)
                if isinstance(event, JobStarted):
                    waits.append((event.at.timestamp() - asked) * 1000)
            await asyncio.sleep(0.002)
    await bus.close()
    cuts = statistics.quantiles(waits, n=100)
    return {"jobs": jobs, "p50_ms": round(cuts[49], 2), "p99_ms": round(cuts[98], 2)}


def median_run(rows: list[dict[str, Any]]) -> dict[str, Any]:
    ordered = sorted(rows, key=lambda row: row["jobs_per_second"])
    return {
        **ordered[len(ordered) // 2],
        "runs": [row["jobs_per_second"] for row in rows],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=40_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    result: dict[str, Any] = {"benchmark": "throughput", "machine": describe()}
    for count in (1, 2):
        rows = []
        for _ in range(options.repeat):  # a fresh broker each time: no run inherits a full disk
            with Broker() as broker:
                settings = settings_for(broker.url)
                rows.append(asyncio.run(throughput(settings, broker, count, options.jobs)))
        result[f"workers_{count}"] = median_run(rows)
    with Broker() as broker:
        result["idle_pickup"] = asyncio.run(pickup(settings_for(broker.url), 500))
    result["process_count"] = {"broker": 1, "dispatcher": 1, "workers": "1 or 2"}
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    main()
