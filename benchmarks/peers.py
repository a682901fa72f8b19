"""Penstock beside Celery, Dramatiq, RQ, Huey and taskiq-nats, in one run. Prints JSON.

Every row gets a fresh broker and two worker processes, and is measured by the same program
(`peers/drive.py`) in the peer's own environment:

* *throughput*: no-op jobs with one argument, dispatched while the workers run by one
  process, or by four where a peer cannot dispatch in bulk; the clock runs from the first dispatch
  until the results of all jobs are stored. A row that is not finished after ``--most-seconds`` is
  rated by what was stored until then.
* *pickup*: an idle installation is given one job; from asking for it to its function's first line.
* *naps*: jobs that wait for 100 ms on ten places; how much longer than ideal they take.
* *memory* of the workers (proportional set size), and CPU time of each part.

Rounds are interleaved, so that what else the machine does hits all rows alike; medians are told.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from machine import describe
from peer_parts import (
    APPS,
    broker,
    cpu_seconds,
    drive,
    environment,
    memory_mib,
    redis_server,
    versions,
    workers,
)
from peer_setups import DURABILITY, Setup, setups

_PLACES, _NAP_SECONDS, _WARM_JOBS = 10, 0.1, 200


def measure(setup: Setup, cache: Path, options: argparse.Namespace) -> dict[str, Any]:
    programs, found = environment(cache, setup.peer), {"load": round(os.getloadavg()[0], 2)}
    with broker(cache, setup) as (url, broker_pid):
        paths = os.pathsep.join(filter(None, [str(APPS), os.environ.get("PYTHONPATH")]))
        env = {"PEERS_URL": url, "PEERS_MODE": setup.mode, "PYTHONPATH": paths}

        def driven(*what: object) -> dict[str, Any]:
            return drive(programs, env, setup.app, *map(str, what))

        with workers(programs, setup.workers, env) as running:
            pids = [child.pid for child in running]
            _warm(lambda: driven("noop", _WARM_JOBS, 20, 1))
            idle = driven("pickup", options.pickups)
            found |= {f"pickup_{key}": value for key, value in idle.items()}
            before = cpu_seconds(pids), cpu_seconds([broker_pid])
            run = driven("noop", options.jobs, options.most_seconds, setup.dispatchers)
            used = cpu_seconds(pids) - before[0], cpu_seconds([broker_pid]) - before[1]
            found |= _throughput(run, used)
            found["memory_mib"] = memory_mib(pids)
    with broker(cache, setup) as (url, _):
        env["PEERS_URL"] = url
        with workers(programs, setup.ten, env) as running:
            _warm(lambda: driven("nap", 5 * _PLACES, 20, 1))
            run = driven("nap", options.naps, options.most_seconds, 1)
            found["naps_over_ideal"] = run["seconds"] * _PLACES / (run["jobs"] * _NAP_SECONDS)
            found["memory_of_ten_mib"] = memory_mib([child.pid for child in running])
    return found


def _warm(first_jobs: Callable[[], dict[str, Any]]) -> None:
    """Until the workers have done the first jobs. What core NATS is told before they listen is
    lost, so they may be given them again."""
    for _ in range(3):
        run = first_jobs()
        if run["finished"]:
            return
    raise RuntimeError(f"its workers did not do the first jobs: {run}")


def _throughput(run: dict[str, Any], used: tuple[float, float]) -> dict[str, Any]:
    jobs, feeding = max(run["jobs"], 1), run["dispatcher_cpu_us_per_job"]
    workers_us, broker_us = (seconds / jobs * 1e6 for seconds in used)
    return {
        "jobs_per_second": jobs / run["seconds"],
        "finished": run["finished"],
        "dispatched_per_second": run["dispatched_per_second"],
        "cpu_us_per_job": workers_us + broker_us + feeding if feeding is not None else None,
        "cpu_us_per_job_workers": workers_us,
        "cpu_us_per_job_broker": broker_us,
        "cpu_us_per_job_dispatcher": feeding,
    }


def median_row(setup: Setup, runs: list[dict[str, Any]], cache: Path) -> dict[str, Any]:
    keys = {key: None for run in runs for key in run if key not in ("finished", "load")}
    middle = {}
    for key in keys:
        values = [run[key] for run in runs if run.get(key) is not None]
        middle[key] = _rounded(statistics.median(values)) if values else None
    return {
        "peer": setup.peer,
        "dispatchers": setup.dispatchers,
        "mode": setup.mode,
        **middle,
        "finished": all(run["finished"] for run in runs),
        "runs_jobs_per_second": [round(run["jobs_per_second"]) for run in runs],
        "runs_pickup_p50_ms": [_rounded(run.get("pickup_p50_ms")) for run in runs],
        "load": [run["load"] for run in runs],
        "settings": setup.said,
        "durability": DURABILITY[setup.broker, setup.mode],
        "versions": versions(environment(cache, setup.peer), setup.packages),
    }


def _rounded(value: float | None) -> float | None:
    if value is None:
        return None
    return round(value) if value >= 100 else round(value, 2)


def compare(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Ours against the best of the others: by the clock, and by CPU time, which a busy machine
    hardly changes. Above 1 ours is better."""
    found: dict[str, Any] = {}
    for mode in dict.fromkeys(row["mode"] for row in rows):
        found[mode] = {}
        for key, best, power in (("jobs_per_second", max, 1), ("cpu_us_per_job", min, -1)):
            seen = {row["peer"]: row[key] for row in rows if row["mode"] == mode and row[key]}
            ours = seen.pop("penstock", None)
            if ours and seen:
                peer = best(seen, key=lambda name: seen[name])
                ratio = round((ours / seen[peer]) ** power, 2)
                found[mode][key] = {"best_peer": peer, "times_better": ratio}
    return found


def main() -> None:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=4_000)
    parser.add_argument("--pickups", type=int, default=200)
    parser.add_argument("--naps", type=int, default=300)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--most-seconds", type=float, default=30.0)
    parser.add_argument("--only", nargs="*", default=[], help="names of peers")
    parser.add_argument("--mode", choices=["fast", "reliable"], help="else both")
    parser.add_argument(
        "--cache", type=Path, default=home / "penstock-peers", help="folder of environments, Redis"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that all that was started is ended
    cache = options.cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    wanted = [
        setup
        for setup in setups()
        if (not options.only or setup.peer in options.only) and options.mode in (None, setup.mode)
    ]
    print(f"environments and Redis are in {cache}", file=sys.stderr)
    for peer in dict.fromkeys(setup.peer for setup in wanted):
        environment(cache, peer)
    redis_server(cache)
    machine, runs = describe(), {index: [] for index in range(len(wanted))}
    for round_ in range(options.repeat):
        for index, setup in enumerate(wanted):
            told = f"{round_ + 1} {setup.peer} {setup.mode}"
            try:
                found = measure(setup, cache, options)
            except (
                RuntimeError,
                subprocess.SubprocessError,
                psutil.Error,
            ) as error:  # the others go on
                print(f"{told} failed: {error}", file=sys.stderr)
                continue
            runs[index].append(found)
            print(f"{told}: {round(found['jobs_per_second'])} jobs/s", file=sys.stderr)
    rows = [
        median_row(setup, runs[index], cache) for index, setup in enumerate(wanted) if runs[index]
    ]
    report = {
        "benchmark": "peers",
        "machine": machine,
        "jobs": options.jobs,
        "worker_processes": 2,
        "repeat": options.repeat,
        "rows": rows,
        "compared": compare(rows),
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    main()
