"""The flows of ``benchmarks/workflows.py`` on Prefect, in its own environment. Prints JSON.

``prefect_flows.py SCALE``; the address of SQLite's file is in ``FLOWS_DATABASE``. Prefect's server
is a process of its own; flows run here, as Prefect does it where one calls them, with results
persisted. An inline step is a task that is called, a job one that is submitted to threads.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ |= {
    "PREFECT_HOME": str(Path.cwd()),
    "PREFECT_API_DATABASE_CONNECTION_URL": os.environ["FLOWS_DATABASE"].replace(
        "sqlite:", "sqlite+aiosqlite:"
    ),
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_LOGGING_LEVEL": "ERROR",
    "DO_NOT_TRACK": "1",
}

from prefect import flow, task
from prefect.task_runners import ThreadPoolTaskRunner

_CALLERS = 4


@task(persist_result=True)
def noop(number: int) -> float:
    return time.perf_counter()


@flow(persist_result=True)
def one_inline(number: int) -> float:
    return noop(number)


@flow(persist_result=True)
def one_job(number: int) -> float:
    return noop.submit(number).result()


@flow(persist_result=True)
def chain(steps: int) -> list[float]:
    return [noop.submit(number).result() for number in range(steps)]


@flow(persist_result=True, task_runner=ThreadPoolTaskRunner(max_workers=16))
def join(jobs: int) -> int:
    return len(noop.map(range(jobs)).result())


def rate(function: Callable[[int], Any], count: int) -> float:
    with ThreadPoolExecutor(_CALLERS) as callers:
        started = time.perf_counter()
        list(callers.map(function, range(count)))
        return count / (time.perf_counter() - started)


def measure(scale: float) -> dict[str, Any]:
    def many(count: int) -> int:
        return max(round(count * scale), 5)

    one_inline(0)  # starts the server
    figures = {
        "inline_per_second": round(rate(one_inline, many(60)), 1),
        "job_per_second": round(rate(one_job, many(60)), 1),
    }
    starts = chain(many(50))
    waits = [(after - before) * 1000 for before, after in pairwise(starts)]
    cuts = statistics.quantiles(waits, n=100)
    figures |= {"steps_p50_ms": round(cuts[49], 1), "steps_p99_ms": round(cuts[98], 1)}
    jobs, started = many(200), time.perf_counter()
    assert join(jobs) == jobs
    return figures | {f"join_{jobs}_seconds": round(time.perf_counter() - started, 2)}


if __name__ == "__main__":
    print(json.dumps(measure(float(sys.argv[1]))), flush=True)
    os._exit(0)  # its threads may not end
