"""One measurement, inside a peer's own environment. Prints JSON. Standard library only.

``drive.py APP noop|nap JOBS SECONDS DISPATCHERS`` dispatches from processes of their own and waits
until the results of all jobs are recorded (or the seconds are over); ``drive.py APP pickup JOBS``
asks for one job after another and compares the time of asking with that at which its function
began.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import statistics
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

_POLL_SECONDS, _IDLE_SECONDS = 0.02, 0.005


def feed(name: str, work: str, count: int, line: Connection) -> None:
    app = importlib.import_module(name)
    app.recorded()  # connects
    line.send("ready")
    line.recv()
    began, cpu = time.perf_counter(), time.process_time()
    app.dispatch(work, count)
    line.send((time.perf_counter() - began, time.process_time() - cpu))


def throughput(
    name: str, work: str, count: int, most_seconds: float, dispatchers: int
) -> dict[str, Any]:
    lines, feeders = [], []
    for _ in range(dispatchers):
        ours, theirs = multiprocessing.Pipe()
        share = (count + len(lines)) // dispatchers
        feeders.append(multiprocessing.Process(target=feed, args=(name, work, share, theirs)))
        feeders[-1].start()
        lines.append(ours)
    app = importlib.import_module(name)
    for line in lines:
        line.recv()
    before, began = app.recorded(), time.perf_counter()
    for line in lines:
        line.send("go")
    done, seconds = 0, 0.0
    while done < count and seconds < most_seconds:
        time.sleep(_POLL_SECONDS)
        done, seconds = app.recorded() - before, time.perf_counter() - began
    told = [line.recv() for line in lines if line.poll(0.5)]
    for feeder in feeders:
        feeder.terminate()
    complete = len(told) == dispatchers
    return {
        "jobs": done,
        "finished": done >= count,
        "seconds": seconds,
        "dispatched_per_second": count / max(t[0] for t in told) if complete else None,
        "dispatcher_cpu_us_per_job": sum(t[1] for t in told) / count * 1e6 if complete else None,
    }


def pickup(name: str, count: int) -> dict[str, Any]:
    app = importlib.import_module(name)
    app.recorded()
    for _ in range(10):
        app.ask()
    waits = []
    for _ in range(count):
        time.sleep(_IDLE_SECONDS)
        asked = time.time()
        waits.append((app.ask() - asked) * 1000)
    cuts = statistics.quantiles(waits, n=100)
    return {"p50_ms": cuts[49], "p99_ms": cuts[98]}


def main() -> None:
    name, what, count, *rest = sys.argv[1:]
    multiprocessing.set_start_method("spawn")
    if what == "pickup":
        found = pickup(name, int(count))
    else:
        found = throughput(name, what, int(count), float(rest[0]), int(rest[1]))
    print(json.dumps(found), flush=True)
    os._exit(0)  # clients of some peers leave threads that do not end


if __name__ == "__main__":
    main()
