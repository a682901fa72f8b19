"""From command to first job taken, and from a job's start to its first Spark answer. Prints JSON.

Each repetition begins with no worker and one waiting job: a command for one worker is published,
the executor forks it from its warm parent, it connects, claims the job and records `JobStarted`;
the clock stops at that event's time. Spark: each time a fresh worker, which has already run a job,
opens its session on the warm Connect server and asks the smallest query; the first one of all,
which starts the server, is told apart. Broker, executor and workers share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop

from machine import describe
from noop_jobs import first_answer, noop
from penstock.bus.nats import NatsBus, connect
from penstock.bus.protocol import Outgoing
from penstock.config import load
from penstock.events.envelope import encode
from penstock.events.job import JOB_EVENTS, JobStarted
from penstock.events.scaling import WorkersScaled
from penstock.events.subjects import Subjects
from penstock.events.worker import WORKER_EVENTS, WorkerReady, WorkerStopped
from penstock.jobs import Call, Client
from penstock.runtime import children
from penstock.runtime.broker import Broker
from penstock.runtime.paths import temporary_dir

HOST, POOL = "bench-host", "bench"
PATIENCE_SECONDS = 60.0
_HERE = Path(__file__).resolve().parent


class Bench:
    """An executor process, commanded by this one."""

    def __init__(self, bus: NatsBus, subjects: Subjects) -> None:
        self.bus, self.subjects = bus, subjects
        self.client = Client(bus, prefix=subjects.prefix)
        self._version = 0
        self._ready, self._stopped = asyncio.Semaphore(0), asyncio.Semaphore(0)
        self.spawn_seconds: list[float] = []

    async def follow(self) -> None:
        events = [self.subjects.events("worker")]
        async for message in self.bus.follow(self.subjects.events_stream, events, start="all"):
            event = WORKER_EVENTS.decode(message.body)
            if isinstance(event, WorkerReady):
                self.spawn_seconds.append(event.spawn_seconds or 0.0)
                self._ready.release()
            elif isinstance(event, WorkerStopped):
                self._stopped.release()

    async def scale(self, workers: int) -> float:
        """Publishes a plan; POSIX seconds just before."""
        self._version += 1
        plan = WorkersScaled(host=HOST, epoch=1, version=self._version, pools={POOL: workers})
        published_at = time.time()
        await self.bus.append(Outgoing(self.subjects.command(HOST), encode(plan)))
        return published_at

    async def up(self) -> None:
        await self.scale(1)
        await asyncio.wait_for(self._ready.acquire(), PATIENCE_SECONDS)

    async def down(self) -> None:
        await self.scale(0)
        await asyncio.wait_for(self._stopped.acquire(), PATIENCE_SECONDS)

    async def run(self, call: Call) -> Any:
        job_id = await self.client.dispatch(call)
        return (await self.client.wait(job_id, timeout_seconds=PATIENCE_SECONDS)).result

    async def command_to_first_job(self) -> float:
        """One repetition, seconds."""
        job_id = await self.client.dispatch(noop(1))
        published_at = await self.scale(1)
        await self.client.wait(job_id, timeout_seconds=PATIENCE_SECONDS)
        await asyncio.wait_for(self._ready.acquire(), PATIENCE_SECONDS)
        stored = await self.bus.history(self.subjects.events_stream, self.subjects.job(job_id))
        events = [JOB_EVENTS.decode(each.body) for each in stored]
        [started] = [event for event in events if isinstance(event, JobStarted)]
        await self.down()
        return started.at.timestamp() - published_at

    async def first_spark_answer(self) -> float:
        """One repetition, in a worker that has already run a job; seconds."""
        await self.up()
        await self.run(noop(1))
        seconds = float(await self.run(first_answer()))
        await self.down()
        return seconds


@asynccontextmanager
async def executor() -> AsyncIterator[Bench]:
    with Broker() as broker, temporary_dir() as folder:
        environment = {
            "PENSTOCK_NATS__URL": broker.url,
            "PENSTOCK_HOST__NAME": HOST,
            "PENSTOCK_HOST__RUN_DIR": str(folder / "run"),
            "PENSTOCK_POOLS__BENCH": "{}",
            "PENSTOCK_JOBS__MODULES": '["noop_jobs"]',
        }
        settings = load(environment=environment)
        bus = await connect(settings)
        child = children.start(
            [str(Path(sys.executable).with_name("penstock")), "--log-level", "error", "executor"],
            env={**environment, "PYTHONPATH": os.pathsep.join([str(_HERE)])},
            cwd=folder,
        )
        bench = Bench(bus, Subjects(settings.prefix))
        following = asyncio.create_task(bench.follow())
        try:
            yield bench
        finally:
            following.cancel()
            await child.stop(grace_seconds=60)
            await bus.close()


def summary(seconds: Sequence[float]) -> dict[str, Any]:
    """A sample in milliseconds."""
    cuts = statistics.quantiles(seconds, n=20, method="inclusive")
    return {
        "repetitions": len(seconds),
        "p50_ms": round(statistics.median(seconds) * 1000, 1),
        "p95_ms": round(cuts[18] * 1000, 1),
        "min_ms": round(min(seconds) * 1000, 1),
        "max_ms": round(max(seconds) * 1000, 1),
    }


async def measure(repetitions: int, spark_repetitions: int) -> dict[str, Any]:
    result: dict[str, Any] = {"benchmark": "spawn", "machine": describe()}
    async with executor() as bench:
        await bench.up()  # the warm parent has done its imports
        await bench.down()
        bench.spawn_seconds.clear()
        taken = [await bench.command_to_first_job() for _ in range(repetitions)]
        result["command_to_first_job"] = summary(taken) | {"goal_p50_ms": 100}
        result["command_to_ready"] = summary(bench.spawn_seconds)
        if spark_repetitions:
            result["spark_cold_server_ms"] = round(await bench.first_spark_answer() * 1000, 1)
            answers = [await bench.first_spark_answer() for _ in range(spark_repetitions)]
            result["first_spark_answer"] = summary(answers) | {"goal_p50_ms": 300}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=30)
    parser.add_argument("--spark-repetitions", type=int, default=10, help="0 leaves Spark out")
    arguments = parser.parse_args()
    print(
        json.dumps(
            uvloop.run(measure(arguments.repetitions, arguments.spark_repetitions)), indent=2
        )
    )


if __name__ == "__main__":
    main()
