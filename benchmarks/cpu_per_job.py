"""CPU time that a no-op job costs each process; of two checkouts in turns, if one more is named.
Prints JSON.

The worker is paused while the jobs are dispatched and runs them alone afterwards, so that it claims
as many at a time as it may, and neither pace nor load of a dispatcher shows in its figure. CPU time
is less noisy than throughput on a machine that others use, but not free of that: compare medians of
rounds that were run in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from machine import describe
from noop_crew import EVENTS_PER_JOB, at_work, fork, settings_for, stored_events
from noop_jobs import noop
from penstock.bus.nats import connect
from penstock.jobs import Client
from penstock.metrics import app as metrics
from penstock.runtime.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.config import Settings

WARM_JOBS = 2_000
ONE_BY_ONE = 1_000
AT_ONCE = 5_000


class Meter:
    """CPU time of a process, user and system, since it was made."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._began = self._now()

    def _now(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def micros(self, jobs: int) -> float:
        """Microseconds for each of so many jobs."""
        return round((self._now() - self._began) / jobs * 1e6, 1)


@contextmanager
def measured(settings: Settings) -> Iterator[int]:
    """Runs a metrics service; gives its process id."""
    process = fork.Process(target=metrics.run, args=(settings,))
    process.start()
    try:
        yield process.pid or 0
    finally:
        process.terminate()
        process.join()


async def dispatched(client: Client, jobs: int) -> list[str]:
    """The ids of so many jobs."""
    ids: list[str] = []
    for start in range(0, jobs, AT_ONCE):
        calls = [noop(number=start + i) for i in range(min(AT_ONCE, jobs - start))]
        ids += await client.dispatch_many(calls)
    return ids


async def measure(settings: Settings, broker: Broker, jobs: int) -> dict[str, float]:
    """One round, on a fresh broker."""
    bus = await connect(settings)
    client = Client(bus)
    with at_work(settings, 1, 1) as pids, measured(settings) as metrics_pid:
        assert broker.child is not None
        [orchestrator_pid] = {
            child.pid for child in psutil.Process().children() if child.pid not in pids
        } - {metrics_pid, broker.child.pid}
        ids = await dispatched(client, WARM_JOBS)
        await client.wait(ids[-1], 60)
        os.kill(pids[0], signal.SIGUSR1)  # takes no more jobs
        await asyncio.sleep(1.0)
        own = time.process_time()
        for number in range(ONE_BY_ONE):
            await client.dispatch(noop(number=number))
        one_by_one, own = time.process_time() - own, time.process_time()
        orchestrator, metering = Meter(orchestrator_pid), Meter(metrics_pid)
        whole_broker, began = Meter(broker.child.pid), time.perf_counter()
        stored = await stored_events(bus)
        await dispatched(client, jobs)
        many = time.process_time() - own
        worker = Meter(pids[0])
        os.kill(pids[0], signal.SIGUSR2)
        # each job that was dispatched before now has its first event already
        while await stored_events(bus) < stored + EVENTS_PER_JOB * jobs + 2 * ONE_BY_ONE:
            await asyncio.sleep(0.02)
        ran = jobs + ONE_BY_ONE
        row = {
            "worker": worker.micros(ran),
            "dispatch": round(one_by_one / ONE_BY_ONE * 1e6, 1),
            "dispatch_many": round(many / jobs * 1e6, 1),
            "broker": whole_broker.micros(jobs),
            "orchestrator": orchestrator.micros(ran),
            "metrics": metering.micros(ran),
            "seconds": round(time.perf_counter() - began, 2),
        }
    await bus.close()
    return row


def in_turns(checkouts: dict[str, Path], jobs: int, rounds: int) -> dict[str, list[Any]]:
    """The rows of each checkout, each measured in a process of its own environment."""
    rows: dict[str, list[Any]] = {name: [] for name in checkouts}
    for _ in range(rounds):
        for name, root in checkouts.items():
            command = [root / ".venv" / "bin" / "python", "-P", __file__, "--one-round"]
            environment = {**os.environ, "PYTHONPATH": str(root / "benchmarks")}
            load = round(os.getloadavg()[0], 2)
            answer = subprocess.run(
                [*command, "--jobs", str(jobs)], env=environment, stdout=subprocess.PIPE, check=True
            )
            rows[name].append({**json.loads(answer.stdout), "load": load})
    return rows


def median(rows: list[dict[str, float]]) -> dict[str, float]:
    return {key: round(statistics.median(row[key] for row in rows), 1) for key in rows[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--against", type=Path, help="another checkout, with its own .venv")
    parser.add_argument("--one-round", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one_round:
        with Broker() as broker:
            row = asyncio.run(measure(settings_for(broker.url), broker, options.jobs))
        print(json.dumps(row))
        return
    checkouts = {"this": Path(__file__).resolve().parent.parent}
    if options.against:
        checkouts["against"] = options.against.resolve()
    machine = describe()
    rows = in_turns(checkouts, options.jobs, options.repeat)
    result: dict[str, Any] = {
        "benchmark": "cpu_per_job",
        "machine": machine,
        "unit": "microseconds of CPU a job",
        "medians": {name: median(measured_rows) for name, measured_rows in rows.items()},
        "rounds": rows,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    main()
