"""Jobs handed over in bulk by one process, event and queue message each. Prints JSON.

No worker runs; broker and client share the machine. The clock stops when the broker has confirmed
the last message; what is stored is counted afterwards.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import uvloop

from machine import describe
from noop_jobs import noop
from penstock.bus.nats import connect
from penstock.config import Settings
from penstock.config.load import check
from penstock.events.subjects import Subjects
from penstock.jobs import Client
from penstock.runtime.broker import Broker


def settings_for(url: str) -> Settings:
    return check({"nats": {"url": url, "request_timeout_seconds": 30}, "pools": {"bench": {}}})


async def in_bulk(settings: Settings, jobs: int) -> dict[str, Any]:
    bus = await connect(settings)
    try:
        client = Client.over(bus, settings)
        await client.dispatch_many([noop(number=i) for i in range(1000)])
        calls = [noop(number=i) for i in range(jobs)]
        began, cpu = time.perf_counter(), time.process_time()
        ids = await client.dispatch_many(calls)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        assert len(set(ids)) == jobs
        subjects = Subjects(settings.prefix)
        for stream in (subjects.jobs_stream, subjects.events_stream):
            info = await bus._api(f"STREAM.INFO.{stream}")
            assert info["state"]["messages"] >= jobs, info["state"]
    finally:
        await bus.close()
    return {
        "jobs_per_second": round(jobs / seconds),
        "client_cpu_us_per_job": round(cpu / jobs * 1e6, 1),
    }


async def one_by_one(settings: Settings, jobs: int) -> dict[str, Any]:
    bus = await connect(settings)
    try:
        client = Client.over(bus, settings)
        began = time.perf_counter()
        for number in range(jobs):
            await client.dispatch(noop(number=number))
        return {"jobs_per_second": round(jobs / (time.perf_counter() - began))}
    finally:
        await bus.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    report: dict[str, Any] = {"benchmark": "dispatch", "machine": describe()}
    for _ in range(options.repeat):
        with Broker() as broker:
            rows.append(uvloop.run(in_bulk(settings_for(broker.url), options.jobs)))
    best_first = sorted(rows, key=lambda row: -row["jobs_per_second"])
    report["in_bulk"] = best_first[len(rows) // 2] | {
        "jobs": options.jobs,
        "runs": [row["jobs_per_second"] for row in rows],
    }
    with Broker() as broker:
        report["one_by_one"] = uvloop.run(one_by_one(settings_for(broker.url), 2000))
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
