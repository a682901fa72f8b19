"""The console: how fast it reads the event log, answers and pushes, and what it takes. Prints JSON.

* *projection*: a log that a console with an empty folder finds: events a second until all are
  folded, and CPU time of the console and the broker.
* *list*: jobs by 18 filters over HTTP, 50 of each answer, one after another, over a full database.
* *api*: lists and 304s a second, and a core: requests by CPU time of the console.
* *process*: start until it answers (its modules compiled before), and resident memory over the full
  database, before and after each list was asked for.
* *steady*: no-op jobs through two workers without a console, with one, how far it lags, and with
  one that is stopped.
* *beside*: throughput and start times without a console, and beside one that runs, ended, hangs,
  or runs a quarter of the time; each round in another order, compared with its stretch without.
* *detail*: one job by its own events, and the page of one with very many.
* *overview*: first byte, largest paint, bytes and requests of the first page in a browser.
* *push*: a stored event until it is on 200 open pages, one of them in a browser.
* *alerts*: an event until its message is claimed and at the receiver; a rule tested over 14 days.
* *backtests*: each rule that an installation begins with, over 14 days with many decisions.
* *bulk*, *bulk of three attempts*, *preview*: dead jobs retried as one action;
  waiting ones counted for one.

The full database is folded once and shared by the rows that read it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import console_pages as pages
import console_platform as platform
from console_alerts import backtests
from console_beside import beside
from console_load import lives, waiting
from console_process import ConsoleProcess, append, connected, fill, fold_all, percentiles
from console_requests import FILTERS, Caller, answers_within, etag_of, list_path
from machine import describe
from penstock.runtime.broker import Broker

_MOST_SECONDS = 240.0
_EVENTS_OF_A_JOB = 3.03
Row = dict[str, Any]


class Bench:
    """What the rows share.

    Args:
        folder: for all files.
        rows: of the full database.
        events: of the log that is caught up with.
        scale: of all other numbers; at most 1.
        kept: folder of the full database, made where it is missing; None: one below ``folder``.
    """

    def __init__(
        self, folder: Path, rows: int, events: int, scale: float, kept: Path | None
    ) -> None:
        self._kept = kept
        self.folder, self.rows, self.events, self.scale = folder, rows, events, scale
        self.seconds = max(5.0 * scale, 0.2)
        self.rounds = max(round(50 * scale), 2)

    @cached_property
    def full(self) -> Path:
        """Folder of a console with a full database."""
        folder = self.folder / "full"
        if self._kept is None:
            folder.mkdir()
        else:
            self._kept.mkdir(exist_ok=True)
            folder.symlink_to(self._kept.resolve())
        if any(folder.iterdir()):
            return folder
        seconds = fill(folder, self.rows)
        print(f"filled with {self.rows:,} rows in {seconds:.0f} s", file=sys.stderr)
        return folder

    @cached_property
    def waiting(self) -> Path:
        """Folder of a console whose jobs all wait, twice as many."""
        folder = self.folder / "waiting"
        folder.mkdir()
        fold_all(folder, waiting(2 * self.rows))
        return folder

    def count(self, whole: int) -> int:
        """So many, at this scale; ten at least."""
        return max(round(whole * self.scale), 10)

    def empty(self) -> Path:
        """A new folder."""
        return Path(tempfile.mkdtemp(dir=self.folder))


def projection(bench: Bench) -> Row:
    """Catching up with a log."""

    async def whole(broker: Broker) -> Row:
        events = list(lives(round(bench.events / _EVENTS_OF_A_JOB)))
        async with connected(broker.url) as bus:
            last = await append(bus, events)
        started = time.perf_counter()
        with ConsoleProcess(broker.url, bench.empty()) as console:
            before = console.get("/health")["standing"]["position"]
            cpu, began = console.cpu_seconds, time.perf_counter()
            if before == last:  # a short log is folded by then: its start counts too
                before, cpu, began = 0, 0.0, started
            seconds = await console.folded(last, _MOST_SECONDS) - began
            used = console.cpu_seconds - cpu
            stats = console.get("/jobs/stats")
            assert sum(stats.values()) == round(bench.events / _EVENTS_OF_A_JOB), stats
            return {
                "events_per_second": round((last - before) / seconds),
                "cpu_us_per_event": round(used / (last - before) * 1e6, 1),
                "events": len(events),
                **console.memory_mib,
            }

    with Broker() as broker:
        return asyncio.run(whole(broker))


def job_list(bench: Bench) -> Row:
    """Lists by each filter."""
    took: dict[str, list[float]] = {name: [] for name in FILTERS}
    partial: set[str] = set()
    shown: dict[str, int] = {}
    with Broker() as broker, ConsoleProcess(broker.url, bench.full) as console:
        caller = Caller(console.port)
        for _ in range(bench.rounds):
            for name, words in FILTERS.items():
                seconds, answer = caller.get(list_path(words))
                took[name].append(seconds)
                shown[name] = len(answer["items"])
                partial |= set() if answer["complete"] else {name}
        caller.close()
    return {
        **percentiles([seconds for times in took.values() for seconds in times]),
        "rows": bench.rows,
        "partial": sorted(partial),
        "filters": {
            name: {**percentiles(seconds), "shown": shown[name]} for name, seconds in took.items()
        },
    }


def api(bench: Bench) -> Row:
    """Requests a second."""
    path = list_path("")
    with Broker() as broker, ConsoleProcess(broker.url, bench.full) as console:
        row: Row = {"rows": bench.rows}
        for name, etag in (("lists", ""), ("not_modified", etag_of(console.port, path))):
            cpu, began = console.cpu_seconds, time.perf_counter()
            count = asyncio.run(answers_within(console.port, path, bench.seconds, 8, etag))
            used, seconds = console.cpu_seconds - cpu, time.perf_counter() - began
            row[f"{name}_per_second_of_a_core"] = round(count / used)
            row[f"{name}_per_second"] = round(count / seconds)
        return row


def process(bench: Bench) -> Row:
    """Start and memory."""
    with Broker() as broker:
        with ConsoleProcess(broker.url, bench.empty()):
            pass  # compiles what it imports
        with ConsoleProcess(broker.url, bench.full) as console:
            return _memory(bench, console)


def _memory(bench: Bench, console: ConsoleProcess) -> Row:
    at_start = console.memory_mib
    caller = Caller(console.port)
    for words in (*FILTERS.values(), *FILTERS.values()):
        caller.get(list_path(words))
    caller.close()
    return {
        "ready_seconds": round(console.ready_seconds, 2),
        "ready_cpu_seconds": round(console.ready_cpu_seconds, 2),
        "rows": bench.rows,
        **console.memory_mib,
        "at_start": at_start,
    }


def _with_broker(measure: Callable[[Bench, Broker], Awaitable[Row]]) -> Callable[[Bench], Row]:
    async def whole(bench: Bench) -> Row:
        with Broker() as broker:
            return await measure(bench, broker)

    return lambda bench: asyncio.run(whole(bench))


ROWS: dict[str, Callable[[Bench], Row]] = {
    "projection": projection,
    "list": job_list,
    "api": api,
    "process": process,
    "steady": lambda bench: asyncio.run(platform.steady(bench.empty(), bench.count(40_000))),
    "beside": lambda bench: asyncio.run(
        beside(bench.empty(), bench.count(6_000), bench.count(60), min(bench.rounds, 5))
    ),
    "detail": _with_broker(
        lambda bench, broker: pages.detail(
            broker, bench.empty(), bench.count(30_000), bench.count(20_000), bench.count(300)
        )
    ),
    "overview": _with_broker(
        lambda bench, broker: pages.overview(broker, bench.full, bench.count(100))
    ),
    "push": _with_broker(
        lambda bench, broker: pages.push(broker, bench.empty(), bench.count(199), bench.count(60))
    ),
    "alerts": _with_broker(
        lambda bench, broker: platform.alerts(
            broker, bench.empty(), bench.count(20), bench.count(50_000)
        )
    ),
    "backtests": _with_broker(
        lambda bench, broker: backtests(broker, bench.empty(), bench.count(200_000))
    ),
    "bulk": _with_broker(
        lambda bench, broker: platform.bulk(broker, bench.empty(), bench.count(20_000), 1)
    ),
    "bulk of three attempts": _with_broker(
        lambda bench, broker: platform.bulk(broker, bench.empty(), bench.count(10_000), 3)
    ),
    "preview": _with_broker(lambda bench, broker: platform.preview(broker, bench.waiting)),
}


def medians(runs: list[Row]) -> Row:
    """Of each number; all of the first one, and of the load."""
    numbers = [key for key, value in runs[0].items() if isinstance(value, int | float)]
    middle = {key: round(statistics.median(run[key] for run in runs), 2) for key in numbers}
    spread = {f"runs_{key}": [run[key] for run in runs] for key in (*numbers[:1], "load")}
    return {**runs[-1], **middle, **spread}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=[], metavar="ROW", choices=list(ROWS))
    parser.add_argument("--scale", type=float, default=1.0, help="of all numbers")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rows", type=int, default=500_000, help="of the full database")
    parser.add_argument("--events", type=int, default=500_000, help="of the log that is read")
    parser.add_argument(
        "--full", type=Path, help="folder of the full database: used if it is there, and kept"
    )
    parser.add_argument("--folder", type=Path, help="where files are made; the system's by default")
    options = parser.parse_args()
    report: Row = {"benchmark": "console", "machine": describe()}
    runs: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="console-bench-") as folder:
        bench = Bench(
            folder=Path(folder),
            rows=max(round(options.rows * options.scale), 100),
            events=max(round(options.events * options.scale), 300),
            scale=min(options.scale, 1.0),
            kept=options.full,
        )
        for number in range(options.repeat):
            for name in options.only or ROWS:
                load = round(os.getloadavg()[0], 2)
                run = {**ROWS[name](bench), "load": load}
                print(f"{number + 1} {name}: {run}", file=sys.stderr)
                runs.setdefault(name, []).append(run)
    report["rows"] = {name: medians(rows) for name, rows in runs.items()}
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    main()
