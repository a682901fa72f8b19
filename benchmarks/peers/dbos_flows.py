"""The flows of ``benchmarks/workflows.py`` on DBOS, in its own environment. Prints JSON.

``dbos_flows.py SCALE``; the database is in ``FLOWS_DATABASE``. Workflows run in this process, as
DBOS does it where one calls them; steps that are jobs are workflows of a queue, polled each
10 ms (its default is 1 s), the least that leaves the database some rest.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dbos import DBOS, DBOSConfig

_POLL_SECONDS = 0.01
_CALLERS = 16
_QUEUE = "bench"

ends: dict[int, float] = {}
starts: dict[int, float] = {}


@DBOS.step()
def nothing(number: int) -> int:
    return number


@DBOS.workflow()
def noop(number: int) -> int:
    starts[number] = time.perf_counter()
    ends[number] = time.perf_counter()
    return number


@DBOS.workflow()
def one_inline(number: int) -> int:
    return nothing(number)


@DBOS.workflow()
def one_job(number: int) -> int:
    handle = DBOS.enqueue_workflow(_QUEUE, noop, number)
    return handle.get_result(polling_interval_sec=_POLL_SECONDS)


@DBOS.workflow()
def chain(steps: int) -> int:
    total = 0
    for number in range(steps):
        handle = DBOS.enqueue_workflow(_QUEUE, noop, number)
        total += handle.get_result(polling_interval_sec=_POLL_SECONDS)
    return total


@DBOS.workflow()
def join(jobs: int) -> int:
    handles = [DBOS.enqueue_workflow(_QUEUE, noop, number) for number in range(jobs)]
    return sum(handle.get_result(polling_interval_sec=_POLL_SECONDS) for handle in handles)


def rate(function: Callable[[int], int], count: int) -> float:
    with ThreadPoolExecutor(_CALLERS) as callers:
        list(callers.map(function, range(_CALLERS)))
        started = time.perf_counter()
        list(callers.map(function, range(count)))
        return count / (time.perf_counter() - started)


def steps(count: int) -> dict[str, float]:
    starts.clear()
    ends.clear()
    chain(count)
    waits = [(starts[n + 1] - ends[n]) * 1000 for n in range(count - 1)]
    cuts = statistics.quantiles(waits, n=100)
    return {"steps_p50_ms": round(cuts[49], 1), "steps_p99_ms": round(cuts[98], 1)}


def measure(scale: float) -> dict[str, Any]:
    def many(count: int) -> int:
        return max(round(count * scale), 10)

    started = time.perf_counter()
    jobs = many(1_000)
    joined = join(jobs)
    assert joined == sum(range(jobs))
    joined_seconds = time.perf_counter() - started
    return {
        "inline_per_second": round(rate(one_inline, many(1_000))),
        "job_per_second": round(rate(one_job, many(500))),
        **steps(many(100)),
        f"join_{jobs}_seconds": round(joined_seconds, 2),
    }


def main() -> None:
    config: DBOSConfig = {
        "name": "flows",
        "system_database_url": os.environ["FLOWS_DATABASE"],
        "log_level": "ERROR",
        "notification_listener_polling_interval_sec": _POLL_SECONDS,
    }
    DBOS(config=config)
    DBOS.launch()
    DBOS.register_queue(_QUEUE, polling_interval_sec=_POLL_SECONDS)
    figures = measure(float(sys.argv[1]))
    print(json.dumps(figures), flush=True)
    os._exit(0)  # its threads may not end


if __name__ == "__main__":
    main()
