"""Durable workflows: rates, latency of steps, joins, suspended instances and timers. Prints JSON.

Broker, one orchestrator, two workers and the client share the machine; each figure has a fresh
broker. Workflows and their steps lie in one pool. Clocks run from the first dispatch until the
last event is stored, and the number of events is checked: nothing ran twice.

* *one job*: a workflow of one step that is a job: 8 events and 4 queue messages each.
* *one inline*: a workflow of one inline step: 4 events and one queue message.
* *steps*: in one instance, the stored end of a step to the stored start of the next one's job.
* *join*: dispatch of an instance to its end, with so many no-op jobs beside each other.
* *cold advance*: an instance with 1,000 recorded steps: read from the broker, and run from the top.
* *suspended*: memory of orchestrator and broker for each, and CPU time while nothing happens.
* *timers*: due at one instant; how late the last goes on.

The same flows on DBOS (SQLite, and PostgreSQL where it is installed), Restate and Prefect run in
between, each in an environment of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil

import workflow_flows as flows
from cold_advance import cold_advance
from machine import describe
from noop_crew import at_work, settings_for, stored_events
from penstock.bus.nats import NatsBus, connect
from penstock.events.subjects import Subjects
from penstock.jobs import Client, derived_ids
from penstock.jobs.job_type import Call
from penstock.runtime.broker import Broker
from workflow_peers import peers

_ONE_JOB_EVENTS, _ONE_INLINE_EVENTS = 8, 4
_DISPATCHED_AT_ONCE = 5_000
_MOST_SECONDS = 240.0
_IDLE_SECONDS = 10.0
_PEERS = ["dbos-sqlite", "dbos-postgres", "restate", "prefect-sqlite", "absurd", "temporal"]


class Crew:
    """A broker, an orchestrator and workers, with a client.

    Attributes:
        processes: by what they are.
    """

    def __init__(self, bus: NatsBus, processes: dict[str, list[psutil.Process]]) -> None:
        self.bus, self.client, self.processes = bus, Client(bus), processes

    def cpu_seconds(self) -> dict[str, float]:
        return {name: sum(map(_cpu_seconds, group)) for name, group in self.processes.items()}

    def memory_mib(self, name: str) -> float:
        return sum(one.memory_info().rss for one in self.processes[name]) / 2**20

    async def dispatch(self, calls: list[Call]) -> list[str]:
        ids: list[str] = []
        for start in range(0, len(calls), _DISPATCHED_AT_ONCE):
            ids += await self.client.dispatch_many(calls[start : start + _DISPATCHED_AT_ONCE])
        return ids

    async def stored(self, events: int) -> None:
        """Waits until the log holds so many. Raises TimeoutError."""
        async with asyncio.timeout(_MOST_SECONDS):
            while await stored_events(self.bus) < events:
                await asyncio.sleep(0.01)

    async def settled(self) -> int:
        """How many events the log holds once it holds no more for half a second."""
        events = -1
        while events != (events := await stored_events(self.bus)):
            await asyncio.sleep(0.5)
        return events

    async def last_end(self) -> float:
        """When the last job completed, POSIX seconds."""
        ends = Subjects().events("job", "*", "JobCompleted")
        stored = await self.bus.last(Subjects().events_stream, ends)
        assert stored is not None
        return stored.at.timestamp()


def _cpu_seconds(one: psutil.Process) -> float:
    times = one.cpu_times()
    return float(times.user + times.system)


@asynccontextmanager
async def crew(workers: int, slots: int) -> AsyncIterator[Crew]:
    with Broker() as broker:
        settings = settings_for(broker.url, "workflow_flows", slots=slots)
        bus = await connect(settings)
        me = psutil.Process()
        others = {child.pid for child in me.children()}
        with at_work(settings, workers, 1) as pids:
            started = [child for child in me.children() if child.pid not in others]
            assert broker.child is not None
            one = Crew(
                bus,
                {
                    "broker": [psutil.Process(broker.child.pid)],
                    "workers": [child for child in started if child.pid in pids],
                    "orchestrator": [child for child in started if child.pid not in pids],
                },
            )
            warm = await one.dispatch([flows.one_job(number=n) for n in range(50)])
            await asyncio.gather(*(one.client.wait(job_id, 60) for job_id in warm))
            await asyncio.sleep(1.0)
            yield one
        await bus.close()


async def rate(one: Crew, calls: list[Call], events: int) -> dict[str, Any]:
    """Workflows a second.

    Args:
        events: that each stores.
    """
    stored, cpu, started = await stored_events(one.bus), one.cpu_seconds(), time.time()
    await one.dispatch(calls)
    wanted = stored + events * len(calls)
    await one.stored(wanted)
    surplus = await one.settled() - wanted  # given back and started again: two events each
    used = {name: value - cpu[name] for name, value in one.cpu_seconds().items()}
    return {
        "workflows_per_second": round(len(calls) / (await one.last_end() - started)),
        **{f"{name}_cpu_us": round(value / len(calls) * 1e6) for name, value in used.items()},
        "given_back": surplus // 2,
    }


async def steps(one: Crew, count: int) -> dict[str, Any]:
    """From the stored end of a step to the stored start of the next one's job."""
    workflow_id = await one.client.dispatch(flows.chain(steps=count))
    await one.client.wait(workflow_id, _MOST_SECONDS)
    stream, subjects = Subjects().events_stream, Subjects()
    starts, ends = [], []
    for n in range(count):
        job_id = derived_ids.step_id(workflow_id, n)
        for name, times in (("JobStarted", starts), ("JobCompleted", ends)):
            stored = await one.bus.last(stream, subjects.events("job", job_id, name))
            assert stored is not None
            times.append(stored.at.timestamp())
    waits = [(start - end) * 1000 for end, start in zip(ends, starts[1:], strict=False)]
    cuts = statistics.quantiles(waits, n=100)
    return {"p50_ms": round(cuts[49], 2), "p99_ms": round(cuts[98], 2)}


async def join(one: Crew, jobs: int) -> dict[str, Any]:
    cpu, started = one.cpu_seconds(), time.perf_counter()
    workflow_id = await one.client.dispatch(flows.join(jobs=jobs))
    view = await one.client.wait(workflow_id, _MOST_SECONDS)
    seconds = time.perf_counter() - started
    if view.result != sum(range(jobs)):
        return {"failed": str(view.record.error)}
    used = {name: value - cpu[name] for name, value in one.cpu_seconds().items()}
    return {
        "seconds": round(seconds, 2),
        **{f"{name}_cpu_us_per_job": round(value / jobs * 1e6) for name, value in used.items()},
    }


async def suspended(one: Crew, count: int) -> dict[str, Any]:
    before = {name: one.memory_mib(name) for name in ("broker", "orchestrator")}
    stored = await stored_events(one.bus)
    await one.dispatch([flows.waiting()] * count)
    await one.stored(stored + 3 * count)
    await asyncio.sleep(15.0)  # the orchestrator has compared each with the log once
    cpu = one.cpu_seconds()
    await asyncio.sleep(_IDLE_SECONDS)
    idle = {name: value - cpu[name] for name, value in one.cpu_seconds().items()}
    grown = {name: one.memory_mib(name) - was for name, was in before.items()}
    return {
        **{f"{name}_grown_mib": round(value, 1) for name, value in grown.items()},
        **{
            f"{name}_for_100_000_mib": round(value * 100_000 / count)
            for name, value in grown.items()
        },
        **{
            f"{name}_idle_cpu_percent": round(value / _IDLE_SECONDS * 100, 1)
            for name, value in idle.items()
        },
    }


async def timers(one: Crew, count: int) -> dict[str, Any]:
    ahead_seconds = 5.0 + count / 250
    due = time.time() + ahead_seconds
    stored = await stored_events(one.bus)
    ids = await one.dispatch([flows.until(due=due)] * count)
    await one.stored(stored + 3 * count)
    spare_seconds = due - time.time()
    await one.stored(stored + 5 * count)
    last_seconds = time.time() - due
    sample = ids[:: max(count // 500, 1)]
    late = [float((await one.client.job(job_id)).result) for job_id in sample]
    return {
        "suspended_before_seconds": round(spare_seconds, 1),
        "late_p50_seconds": round(statistics.median(late), 2),
        "last_ended_after_seconds": round(last_seconds, 2),
    }


Figure = Callable[[Crew], Awaitable[dict[str, Any]]]


def figures(scale: float) -> dict[str, Figure]:
    """What is measured, by name.

    Args:
        scale: of the number of workflows and steps.
    """

    def many(count: int) -> int:
        return max(round(count * scale), 10)

    def one_job(one: Crew) -> Awaitable[dict[str, Any]]:
        return rate(one, [flows.one_job(number=n) for n in range(many(6_000))], _ONE_JOB_EVENTS)

    def one_inline(one: Crew) -> Awaitable[dict[str, Any]]:
        calls: list[Call] = [flows.one_inline(number=n) for n in range(many(10_000))]
        return rate(one, calls, _ONE_INLINE_EVENTS)

    measured: dict[str, Figure] = {
        "one_job": one_job,
        "one_inline": one_inline,
        "steps": lambda one: steps(one, many(300)),
    }
    for count in (many(1_000), many(10_000)):
        measured |= {
            f"join_{count}": lambda one, count=count: join(one, count),  # type: ignore[misc]
            f"suspended_{count}": lambda one, count=count: suspended(one, count),  # type: ignore[misc]
            f"timers_{count}": lambda one, count=count: timers(one, count),  # type: ignore[misc]
        }
    measured["cold_advance"] = lambda one: cold_advance(one.bus, many(1_000))
    return measured


async def measure(figure: Figure, options: argparse.Namespace) -> dict[str, Any]:
    load = round(os.getloadavg()[0], 2)
    async with crew(options.workers, options.slots) as one:
        return {**await figure(one), "load": load}


def medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Of each number; all of the first one, and of the load."""
    numbers = [key for key, value in runs[0].items() if isinstance(value, int | float)]
    middle = {
        key: round(statistics.median(run[key] for run in runs if key in run), 2) for key in numbers
    }
    spread = {f"runs_{key}": [run.get(key) for run in runs] for key in (*numbers[:1], "load")}
    return {**runs[0], **middle, **spread}


def main() -> None:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of workflows")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--slots", type=int, default=16, help="of each worker")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[], help="beginnings of figures' names")
    parser.add_argument("--peers", nargs="*", default=_PEERS)
    parser.add_argument(
        "--cache", type=Path, default=home / "penstock-peers", help="folder of environments"
    )
    options = parser.parse_args()
    wanted = {
        name: figure
        for name, figure in figures(options.scale).items()
        if not options.only or name.startswith(tuple(options.only))
    }
    report: dict[str, Any] = {
        "benchmark": "workflows",
        "machine": describe(),
        "workers": options.workers,
        "slots": options.slots,
    }
    runs: dict[str, list[dict[str, Any]]] = {}
    for number in range(options.repeat):
        for name, figure in wanted.items():
            run = asyncio.run(measure(figure, options))
            print(f"{number + 1} {name}: {run}", file=sys.stderr)
            runs.setdefault(name, []).append(run)
        for name, peer in peers(options.peers, options.cache, options.scale):
            run = peer()
            print(f"{number + 1} {name}: {run}", file=sys.stderr)
            runs.setdefault(name, []).append(run)
    report["figures"] = {name: medians(rows) for name, rows in runs.items()}
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    main()
