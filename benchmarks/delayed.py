"""Delayed jobs: 10,000 due at one instant, and single ones. Prints JSON.

*Late* is from the moment a job is due to its JobStarted, by the clock of the worker that starts it
(one machine, one clock). The broker's own part, until the job's message is in its queue, is told
beside it. Broker, client, one orchestrator and workers share the
machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Iterable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import uvloop

from machine import describe
from noop_crew import EVENTS_PER_JOB, at_work, settings_for, stored_events
from noop_jobs import noop
from penstock.bus.nats import NatsBus, connect
from penstock.config import Settings
from penstock.events.job import JOB_EVENTS, JobStarted
from penstock.events.subjects import Subjects
from penstock.jobs import Client
from penstock.runtime.broker import Broker

AT_ONCE = 200
"""Dispatches under way."""


async def dispatch(client: Client, due: Iterable[datetime]) -> dict[str, float]:
    """When each job is due (POSIX seconds), by id."""
    found: dict[str, float] = {}
    left = iter(enumerate(due))

    async def lane() -> None:
        for number, at in left:
            found[await client.dispatch(noop(number=number), at=at)] = at.timestamp()

    await asyncio.gather(*(lane() for _ in range(AT_ONCE)))
    return found


async def lateness(bus: NatsBus, due: dict[str, float]) -> dict[str, Any]:
    """Of all of these jobs, once they have started."""
    late: list[float] = []
    brokers: list[float] = []
    pattern = Subjects().events("job", "*", "JobStarted")
    following: Any = bus.follow(Subjects().events_stream, [pattern], "all")
    async with aclosing(following) as messages:
        async for stored in messages:
            event = JOB_EVENTS.decode(stored.body)
            if isinstance(event, JobStarted) and event.job_id in due:
                late.append(event.at.timestamp() - due[event.job_id])
                brokers.append(late[-1] - event.pickup_seconds)
                if len(late) == len(due):
                    break
    return {"jobs": len(late), **_spread("late", late), **_spread("in_the_queue", brokers)}


def _spread(name: str, seconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=100)
    told = {"min": min(seconds), "p50": cuts[49], "p99": cuts[98], "max": max(seconds)}
    return {f"{name}_{what}_ms": round(value * 1000, 1) for what, value in told.items()}


async def together(client: Client, bus: NatsBus, jobs: int, ahead_seconds: float) -> dict[str, Any]:
    """Their events are read when all have ended: who reads along takes a third of a core."""
    before = await stored_events(bus)
    at, began = datetime.now(UTC) + timedelta(seconds=ahead_seconds), time.monotonic()
    due = await dispatch(client, [at] * jobs)
    seconds = time.monotonic() - began
    assert seconds < ahead_seconds, f"dispatching took {seconds:.1f} s: set --ahead higher"
    while await stored_events(bus) < before + EVENTS_PER_JOB * jobs:
        await asyncio.sleep(0.25)
    return {"dispatched_per_second": round(jobs / seconds), **await lateness(bus, due)}


async def alone(client: Client, bus: NatsBus, jobs: int) -> dict[str, Any]:
    """One after another: the only one that the broker keeps."""
    due: dict[str, float] = {}
    for _ in range(jobs):
        mine = await dispatch(client, [datetime.now(UTC) + timedelta(seconds=0.3)])
        await client.wait(next(iter(mine)), 30)
        due |= mine
    return await lateness(bus, due)


async def among_others(client: Client, bus: NatsBus, jobs: int) -> dict[str, Any]:
    """All are kept at once, due 0.1 s apart.

    The broker looks for what is due every 250 ms then (measured, 2.15.1), not at each one's time.
    """
    first, apart = datetime.now(UTC) + timedelta(seconds=2), timedelta(seconds=0.1)
    return await lateness(bus, await dispatch(client, (first + n * apart for n in range(jobs))))


async def measure(settings: Settings, options: argparse.Namespace) -> dict[str, Any]:
    bus = await connect(settings)
    client = Client(bus)
    with at_work(settings, options.workers, orchestrators=1):
        await client.wait((await client.dispatch_many([noop(number=0)]))[0], 30)
        single = {
            "alone": await alone(client, bus, options.singles),
            "among_others": await among_others(client, bus, options.singles),
        }
        rows = [
            await together(client, bus, options.jobs, options.ahead) for _ in range(options.repeat)
        ]
    await bus.close()
    return {"singles": single, "at_one_instant": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--singles", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--ahead", type=float, default=30.0, help="seconds to dispatch them all in")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    with Broker() as broker:
        found = uvloop.run(measure(settings_for(broker.url), options))
    print(json.dumps({"benchmark": "delayed", "machine": describe(), **found}, indent=2))


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    main()
