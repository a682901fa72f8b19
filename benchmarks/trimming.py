"""How fast the orchestrator reads, judges and removes history of jobs that ended. JSON.

A log is filled with the events of no-op jobs as they are stored, three each, and shortened by the
orchestrator's own code in this process, whose CPU time counts. A job that lives is among so many.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import uvloop
from msgspec.structs import replace

from machine import describe
from noop_crew import settings_for
from noop_jobs import noop
from penstock.bus.nats import connect
from penstock.bus.protocol import BusError, Expect, Outgoing
from penstock.config import Settings
from penstock.events.envelope import encode
from penstock.events.job import JobCompleted, JobEvent, JobStarted
from penstock.jobs import Client
from penstock.jobs.dispatch.job_factory import Terms
from penstock.orchestrator.app import Orchestrator
from penstock.runtime.broker import Broker
from penstock.runtime.service import Service

_AT_ONCE = 500
_LIMIT_BYTES = 16_000_000
"""Far less than is stored: all of it leaves the log. Windows are as large as for 64 MB or more."""


@dataclass
class Figures:
    messages: int
    carried: int
    seconds: float
    messages_per_second: float
    messages_per_cpu_second: float


async def fill(settings: Settings, jobs: int, living_every: int) -> None:
    bus = await connect(settings)
    client = Client.over(bus, settings)
    for start in range(0, jobs, _AT_ONCE):
        ids = await _dispatch(client, bus, start)
        ended = [one for number, one in enumerate(ids) if (start + number) % living_every]
        about: dict[str, Any] = {"source": "bench", "queue": "bench", "attempt": 1}
        began = [JobStarted(job_id=i, host="h", worker="w", **about) for i, _ in ended]
        sequences = await _store(bus, began, [sequence for _, sequence in ended])
        done = [JobCompleted(job_id=i, run_seconds=0.001, result=b"1", **about) for i, _ in ended]
        await _store(bus, done, sequences)
    await bus.close()


async def _dispatch(client: Client, bus: Any, start: int) -> list[tuple[str, int]]:
    events = [
        client.dispatcher.prepare(
            noop(number=start + number), f"job-{start + number}", terms=Terms()
        )
        for number in range(_AT_ONCE)
    ]
    sequences = await _store(bus, events, [0] * len(events))
    return [(event.job_id, at) for event, at in zip(events, sequences, strict=True)]


async def _store(bus: Any, events: list[Any], after: list[int]) -> list[int]:
    """Stores them by compare-and-set, as workers do."""
    messages = [_outgoing(bus, event, at) for event, at in zip(events, after, strict=True)]
    answers: list[int | BusError] = await bus.append_many(messages)
    if errors := [answer for answer in answers if isinstance(answer, BusError)]:
        raise errors[0]
    return [answer for answer in answers if isinstance(answer, int)]


def _outgoing(bus: Any, event: JobEvent, after: int) -> Outgoing:
    expect = Expect(after, bus.subjects.job(event.job_id))
    return Outgoing(bus.subjects.event(event), encode(event), {}, expect)


async def shorten(settings: Settings) -> Figures:
    bus = await connect(settings)
    small = replace(settings, streams=replace(settings.streams, events_max_bytes=_LIMIT_BYTES))
    history = Orchestrator(Service("orchestrator", small, bus)).history
    began, cpu_began = time.perf_counter(), time.process_time()
    removed = await history.shorten()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    await bus.close()
    return Figures(
        removed, history.carried, round(seconds, 2), round(removed / seconds), round(removed / cpu)
    )


async def measure(options: argparse.Namespace) -> Figures:
    with Broker() as broker:
        settings = settings_for(broker.url)
        await fill(settings, options.jobs, options.living_every)
        return await shorten(settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=40_000)
    parser.add_argument("--living-every", type=int, default=1_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    about = describe()
    runs = [uvloop.run(measure(options)) for _ in range(options.repeat)]
    figures = {
        "messages_per_cpu_second": median(run.messages_per_cpu_second for run in runs),
        "runs": [asdict(run) for run in runs],
    }
    print(json.dumps({"machine": about, **figures}, indent=2))


if __name__ == "__main__":
    main()
