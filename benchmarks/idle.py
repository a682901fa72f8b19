"""An idle installation: CPU and memory of all processes of `penstock up`. Prints JSON.

A folder of its own with one module of jobs; `penstock up` starts broker and services. Timed
are: until programs can reach the broker, until the first job's result is there and, with
``--spark``, the first Spark job's, for which Java starts, and that of the next one. Then the
installation is left alone and what each process used is counted: CPU seconds over the time,
resident memory (shared pages count for each process) and proportional memory (they count once). A
busy machine changes the CPU seconds little, and the times much. ``--hide`` makes a package that
happens to be installed here invisible to it: nats-py imports aiohttp where it can.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

from idle_jobs import first
from idle_spark_jobs import first_on_spark
from machine import describe
from penstock.config.load import check
from penstock.jobs import Client
from penstock.runtime import children
from penstock.runtime.local_broker import URL_FILE, find_url
from penstock.runtime.paths import temporary_dir

_UP_SECONDS, _FIRST_SECONDS, _END_SECONDS = 120.0, 300.0, 60.0
BESIDE = str(Path(__file__).resolve().parent)
_SETTINGS = """
[jobs]
modules = {modules}

[pools.default]
min_workers = 1
max_workers = 4
"""
_SERVICES = ("metrics", "decider", "orchestrator", "console", "worker", "supervisor", "executor")


def process_name(process: psutil.Process) -> str:
    """The service of a process, else its program."""
    words = process.cmdline()
    for name in _SERVICES:
        if any(name in word.split(".") or word == name for word in words):
            return name
    return "up" if "up" in words else process.name()


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def idle(up: int, seconds: float) -> dict[str, Any]:
    """What the processes of an installation use while nothing happens."""
    parent = psutil.Process(up)
    processes = [parent, *parent.children(recursive=True)]
    processes = [one for one in processes if one.status() != psutil.STATUS_ZOMBIE]
    before = {process: cpu_seconds(process) for process in processes}
    began = time.monotonic()
    time.sleep(seconds)
    lasted = time.monotonic() - began
    cpu: Counter[str] = Counter()
    resident: Counter[str] = Counter()
    proportional: Counter[str] = Counter()
    for process, used in before.items():
        if not process.is_running():
            continue
        name, memory = process_name(process), process.memory_full_info()
        cpu[name] += (cpu_seconds(process) - used) / lasted * 100
        resident[name] += memory.rss / 2**20
        proportional[name] += memory.pss / 2**20
    tables = {"core_percent": cpu, "resident_mib": resident, "proportional_mib": proportional}
    services = {
        name: {title: round(table[name], 2) for title, table in tables.items()} for name in resident
    }
    sums = {title: round(sum(table.values()), 2) for title, table in tables.items()}
    return {"seconds": round(lasted, 1), "processes": len(before), **sums, "services": services}


async def first_result(folder: Path, spark: bool) -> float:
    """Seconds from the dispatch to the result."""
    settings = check({"nats": {"url": find_url(folder / ".penstock")[0]}})
    began = time.monotonic()
    async with Client.connect(settings) as client:
        call = first_on_spark(rows=1000) if spark else first(text="one")
        ended = await client.wait(await client.dispatch(call), _FIRST_SECONDS)
    if ended.state != "completed":
        raise RuntimeError(f"found a first job that is {ended.state}, expected a result")
    return round(time.monotonic() - began, 2)


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    modules = ["idle_jobs", *(["idle_spark_jobs"] if options.spark else [])]
    (folder / "penstock.toml").write_text(_SETTINGS.format(modules=json.dumps(modules)))
    (folder / "run").mkdir(mode=0o700)
    for package in options.hide:
        (folder / f"{package}.py").write_text("raise ImportError('hidden')\n")
    began = time.monotonic()
    up = children.start(
        [sys.executable, "-m", "penstock.cli.main", "up", "--no-live", "--ephemeral"],
        name="up",
        cwd=folder,
        log=folder / "up.log",
        env={
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "PYTHONPATH": os.pathsep.join([str(folder), BESIDE, os.environ.get("PYTHONPATH", "")]),
        },
    )
    try:
        address = folder / ".penstock" / URL_FILE
        children.wait_until(up, address.exists, _UP_SECONDS, "reachable")
        times = {"reachable_seconds": round(time.monotonic() - began, 2)}
        asyncio.run(first_result(folder, spark=False))
        times["first_job_done_seconds"] = round(time.monotonic() - began, 2)
        if options.spark:
            for name in ("first", "second"):
                seconds = asyncio.run(first_result(folder, spark=True))
                times[f"{name}_spark_answer_seconds"] = seconds
        time.sleep(options.settle)
        return {**times, "idle": idle(up.pid, options.seconds)}
    finally:
        up.end(_END_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settle", type=float, default=30.0, help="seconds before it is measured")
    parser.add_argument("--seconds", type=float, default=60.0, help="for which it is measured")
    parser.add_argument("--spark", action="store_true", help="also the first Spark answer")
    parser.add_argument("--hide", nargs="*", default=[], help="packages that are not to be there")
    options = parser.parse_args()
    head = {"benchmark": "idle", "machine": describe()}
    with temporary_dir() as folder:
        print(json.dumps({**head, **measure(folder, options)}, indent=2))


if __name__ == "__main__":
    main()
