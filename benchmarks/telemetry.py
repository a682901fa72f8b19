"""What watching costs: jobs a second with telemetry off, on, and with a collector that is ill.

Each mode runs the same jobs through two workers, on a fresh broker, again and again in turn, so
that a busy moment of the machine hits all of them. `on`: spans and log lines as by default, so a
worker traces at most `telemetry.jobs_per_second`; `all`: every job. The collector is a process on
the same cores that reads what it is sent and throws it away; `hangs` takes connections and never
answers, `gone` refuses them. Prints JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil
import uvloop
from msgspec.structs import replace

from machine import describe
from noop_crew import EVENTS_PER_JOB, at_work, fork, settings_for, stored_events
from noop_jobs import busy, noop
from penstock import telemetry
from penstock.bus.nats import connect
from penstock.config import Settings
from penstock.jobs import Client
from penstock.runtime.broker import Broker

MODES = ("off", "on", "all", "hangs", "gone")
WORKERS = 2
Call = Callable[[int], Any]


class Run(NamedTuple):
    """CPU is that of broker, workers and dispatcher; less noisy than the rate."""

    jobs_per_second: float
    cpu_us_per_job: float


def noop_call(number: int) -> Any:
    return noop(number=number)


def busy_1_ms(number: int) -> Any:
    return busy(number=number, milliseconds=1.0)


def busy_5_ms(number: int) -> Any:
    return busy(number=number, milliseconds=5.0)


LOADS: dict[str, tuple[Call, int]] = {
    "noop": (noop_call, 30_000),
    "busy_1_ms": (busy_1_ms, 4000),
    "busy_5_ms": (busy_5_ms, 1000),
}


# --- the collector --------------------------------------------------------------------------------
class Taker(BaseHTTPRequestHandler):
    """Reads and forgets."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def _take(listener: socket.socket) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Taker, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.serve_forever()


def _hang(listener: socket.socket) -> None:
    held = []
    while True:
        held.append(listener.accept())


@contextmanager
def collector(mode: str) -> Iterator[str]:
    """Its address; empty where nothing is sent."""
    if mode == "off":
        yield ""
        return
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
    if mode == "gone":
        listener.close()
        yield endpoint
        return
    process = fork.Process(target=_hang if mode == "hangs" else _take, args=(listener,))
    process.start()
    listener.close()
    try:
        yield endpoint
    finally:
        process.kill()
        process.join()


# --- one run --------------------------------------------------------------------------------------
def dispatch(settings: Settings, call: Call, count: int) -> None:
    """As an application does: a span for each call of `dispatch_many`."""
    end = telemetry.setup("bench-dispatcher", "one", settings)

    async def whole() -> None:
        async with Client.connect(settings) as client:
            for start in range(0, count, 5000):
                await client.dispatch_many(
                    [call(start + i) for i in range(min(5000, count - start))]
                )

    uvloop.run(whole())
    end()


async def measured(settings: Settings, broker: Broker, call: Call, count: int) -> Run:
    bus = await connect(settings)
    client = Client(bus)
    with at_work(settings, WORKERS) as pids:
        ids = await client.dispatch_many([call(i) for i in range(200)])
        await client.wait(ids[-1], 60)
        await asyncio.sleep(0.5)
        telemetry.preload(settings)  # an application's imports are over when it dispatches
        assert broker.child is not None
        watched = [psutil.Process(pid) for pid in (broker.child.pid, *pids)]
        before = sum(map(cpu_seconds, watched)) + ended_seconds()
        stored, started = await stored_events(bus), time.perf_counter()
        dispatcher = fork.Process(target=dispatch, args=(settings, call, count))
        dispatcher.start()
        while await stored_events(bus) < stored + EVENTS_PER_JOB * count:
            await asyncio.sleep(0.01)
        seconds = time.perf_counter() - started
        dispatcher.join()
        used = sum(map(cpu_seconds, watched)) + ended_seconds() - before
    await bus.close()
    return Run(count / seconds, used / count * 1e6)


def cpu_seconds(one: psutil.Process) -> float:
    times = one.cpu_times()
    return float(times.user + times.system)


def ended_seconds() -> float:
    """CPU of the children that have ended: the dispatcher."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(mode: str, load: str) -> Run:
    call, count = LOADS[load]
    with collector(mode) as endpoint, Broker() as broker:
        settings = settings_for(broker.url)
        watched = replace(settings.telemetry, endpoint=endpoint)
        if mode == "all":
            watched = replace(watched, jobs_per_second=0)
        settings = replace(settings, telemetry=watched)
        return asyncio.run(measured(settings, broker, call, count))


def summed(runs: dict[str, list[Run]]) -> dict[str, Any]:
    """Medians, and what each mode costs against the same round without."""
    found: dict[str, Any] = {}
    for mode, each in runs.items():
        pairs = list(zip(each, runs["off"], strict=True))
        lost = median(1 - one.jobs_per_second / off.jobs_per_second for one, off in pairs)
        more = median(one.cpu_us_per_job / off.cpu_us_per_job - 1 for one, off in pairs)
        found[mode] = {
            "jobs_per_second": round(median(one.jobs_per_second for one in each)),
            "runs": [round(one.jobs_per_second) for one in each],
            "lost_share": round(lost, 3),
            "cpu_us_per_job": round(median(one.cpu_us_per_job for one in each), 1),
            "more_cpu_share": round(more, 3),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--loads", nargs="*", default=list(LOADS))
    parser.add_argument("--modes", nargs="*", default=list(MODES))
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    result: dict[str, Any] = {"benchmark": "telemetry", "machine": describe()}
    for load in options.loads:
        runs: dict[str, list[Run]] = {mode: [] for mode in options.modes}
        for _ in range(options.repeat):
            for mode in options.modes:
                runs[mode].append(run(mode, load))
        result[load] = summed(runs)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    main()
