"""No-op jobs through a small event log that turns over, with jobs that wait all the while. JSON.

Jobs are delayed until the end, and then no-op jobs run until as many as asked for have ended. The
orchestrator shortens history meanwhile; it is killed again and again if asked. In the end each job
that was delayed is released and must complete, the queues must be empty, and there must be no dead
letter. Exit code 1 where one of these does not hold.

A job counts as ended when its message has left the queue: its events may have left the log.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import psutil
import uvloop

from machine import describe
from noop_crew import at_work, fork, settings_for
from noop_jobs import noop
from penstock.bus.nats import NatsBus, connect
from penstock.config import Settings
from penstock.events.subjects import Subjects
from penstock.jobs import Client
from penstock.jobs.errors import NotFound
from penstock.orchestrator import app
from penstock.runtime.broker import Broker

_CHUNK = 500
_MOST_WAITING = 1_000
_LOOK_SECONDS = 0.25


class Peaks:
    """The largest of what was seen."""

    def __init__(self, broker: Broker) -> None:
        assert broker.child is not None
        self._process = psutil.Process(broker.child.pid)
        self.log_bytes = self.broker_rss = self.orchestrator_rss = 0
        self.orchestrator: int | None = None

    async def look(self, bus: NatsBus, stream: str) -> None:
        self.log_bytes = max(self.log_bytes, (await bus.extent(stream)).bytes)
        self.broker_rss = max(self.broker_rss, self._process.memory_info().rss)
        if self.orchestrator and psutil.pid_exists(self.orchestrator):
            rss = psutil.Process(self.orchestrator).memory_info().rss
            self.orchestrator_rss = max(self.orchestrator_rss, rss)


async def dispatch(client: Client, bus: NatsBus, jobs: int) -> None:
    """As fast as they are worked off; the client waits where the log takes no more for a while."""
    for start in range(0, jobs, _CHUNK):
        while (await waiting(bus)) > _MOST_WAITING:
            await asyncio.sleep(_LOOK_SECONDS)
        await client.dispatch_many(
            [noop(number=start + i) for i in range(min(_CHUNK, jobs - start))]
        )


async def feed(settings: Settings, bus: NatsBus, jobs: int) -> None:
    async with Client.connect(settings) as client:
        await dispatch(client, bus, jobs)


async def waiting(bus: NatsBus) -> int:
    """Messages in queues, claimed ones included."""
    return sum((await bus.count(bus.subjects.jobs_stream, bus.subjects.queue("*"))).values())


async def measure(
    settings: Settings, broker: Broker, options: argparse.Namespace
) -> dict[str, Any]:
    bus = await connect(settings)
    client = Client(bus)
    subjects = Subjects()
    due = datetime.now(UTC) + timedelta(days=300)
    kept = [await client.dispatch(noop(number=-1), at=due) for _ in range(options.living)]
    peaks, kills = Peaks(broker), 0
    orchestrator = fork.Process(target=app.run, args=(settings,))
    orchestrator.start()
    peaks.orchestrator = orchestrator.pid
    began = time.perf_counter()
    with at_work(settings, options.workers):
        feeding = asyncio.create_task(feed(settings, bus, options.jobs))
        killed_at = time.monotonic()
        while not feeding.done() or await waiting(bus):
            await peaks.look(bus, subjects.events_stream)
            if options.kill_seconds and time.monotonic() - killed_at > options.kill_seconds:
                os.kill(orchestrator.pid or 0, signal.SIGKILL)
                orchestrator.join()
                orchestrator = fork.Process(target=app.run, args=(settings,))
                orchestrator.start()
                peaks.orchestrator, killed_at, kills = orchestrator.pid, time.monotonic(), kills + 1
            await asyncio.sleep(_LOOK_SECONDS)
        await feeding
        seconds = time.perf_counter() - began
        shown = sum([await is_shown(client, name) for name in kept])
        for name in kept:
            await client.cancel(name, "the measurement is over")
        ended = [await client.wait(name, 60) for name in kept]
    orchestrator.terminate()
    orchestrator.join()
    extent = await bus.extent(subjects.events_stream)
    letters = await bus.count(subjects.dead_stream, subjects.dead("*", "*"))
    await bus.close()
    return {
        "jobs": options.jobs,
        "seconds": round(seconds, 1),
        "jobs_per_second": round(options.jobs / seconds),
        "living_jobs": len(kept),
        "living_jobs_shown": shown,
        "living_jobs_ended": sum(view.state.ended for view in ended),
        "orchestrators_killed": kills,
        "dead_letters": len(letters),
        "log_limit_bytes": options.log_bytes,
        "log_bytes_at_most": peaks.log_bytes,
        "messages_removed": extent.first - 1,
        "broker_rss_bytes_at_most": peaks.broker_rss,
        "orchestrator_rss_bytes_at_most": peaks.orchestrator_rss,
    }


async def is_shown(client: Client, name: str) -> bool:
    try:
        return (await client.job(name)).state == "scheduled"
    except NotFound:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000, help="no-op jobs, up to 10,000,000")
    parser.add_argument("--living", type=int, default=500, help="jobs that wait all the while")
    parser.add_argument("--log-bytes", type=int, default=16_000_000, help="limit of the event log")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kill-seconds", type=float, default=0.0, help="between kills; 0: none")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    about = describe()
    with Broker() as broker:
        settings = settings_for(broker.url)
        bounded = msgspec.structs.replace(settings.streams, events_max_bytes=options.log_bytes)
        patient = msgspec.structs.replace(settings.dispatch, when_away="wait", wait_seconds=300.0)
        settings = msgspec.structs.replace(settings, streams=bounded, dispatch=patient)
        figures = uvloop.run(measure(settings, broker, options))
    print(json.dumps({"machine": about, **figures}, indent=2))
    is_good = (
        figures["living_jobs_shown"] == figures["living_jobs_ended"] == figures["living_jobs"]
        and not figures["dead_letters"]
    )
    sys.exit(not is_good)


if __name__ == "__main__":
    main()
