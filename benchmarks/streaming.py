"""A streaming query whose rate triples and falls, on three fleets in turn. Prints JSON.

``penstock``: Workers scaled by the query's progress, to a promise about its batches. ``fixed``: as
many Workers all the time as the peak needs. ``dynamic allocation``: the same, with Spark's own
scaling of executors on them. Slots are Workers (one each) and, beside them, Spark's executors, from
the first step of the load to its end.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from machine import describe
from penstock.config.load import check
from penstock.runtime import children
from penstock.runtime.paths import LOOPBACK, temporary_dir
from penstock.spark.master import address
from spark_apps import STREAM, session_code
from spark_workers import POOL, Site, java_processes, until

PROMISE_SECONDS = 25.0
TRIGGER_SECONDS = 8
ROW_SECONDS = 3.5
"""Of sleep, so that other load on the machine lengthens a row's work by little."""
CALM, BUSY = 0.15, 0.45
"""Rows a second: 0.53 and 1.6 slots' worth."""
PEAK = 3
STEPS = ((20, CALM), (20, BUSY), (40, CALM))
SETTLE_SECONDS = 30
"""From the third batch to the first step: what piled up before the first Worker is worked off."""
_PATIENCE_SECONDS = 300.0
_DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.executorIdleTimeout": "10s",
    "spark.dynamicAllocation.minExecutors": "1",
}
FLEETS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "penstock": ({"source": "progress", "queues": ["load"], "max_workers": PEAK + 1}, {}),
    "fixed": ({"strategy": "fixed", "min_workers": PEAK, "max_workers": PEAK}, {}),
    "dynamic allocation": (
        {"strategy": "fixed", "min_workers": PEAK, "max_workers": PEAK},
        _DYNAMIC,
    ),
}


def measure(fleet: str, times: float) -> dict[str, Any]:
    """One run of the load under a `penstock up` of its own."""
    pool, conf = FLEETS[fleet]
    with temporary_dir() as folder:
        site = Site(folder)
        site.tree["sources"] = {"progress": {"kind": "spark-stream"}}
        site.tree["pools"][POOL] |= {"sla_seconds": PROMISE_SECONDS, **pool}
        site.settings = check(site.tree)
        up = site.run("--up")
        try:
            until(lambda: site.alive() == pool.get("min_workers", 0), _PATIENCE_SECONDS)
            app = _application(site, conf, times, reports="source" in pool)
            try:
                return _watched(site, up.pid, app)
            finally:
                app.end()
        finally:
            up.end(90)


def _application(site: Site, conf: dict[str, str], times: float, reports: bool) -> children.Child:
    script, steps = site.folder / "app.py", [(seconds * times, rate) for seconds, rate in STEPS]
    (site.folder / "load").mkdir()
    conf = {
        "spark.authenticate.secret": site.secret,
        f"spark.executor.resource.{POOL}.amount": "1",
        **conf,
    }
    script.write_text(
        session_code(address(site.settings.cluster), conf)
        + f"REPORTS, STEPS, FOLDER = {reports}, {steps}, {str(site.folder / 'load')!r}\n"
        + f"TRIGGER_SECONDS, ROW_SECONDS = {TRIGGER_SECONDS}, {ROW_SECONDS}\n"
        + f"PROMISE_SECONDS, SETTLE_SECONDS = {PROMISE_SECONDS}, {SETTLE_SECONDS}\n"
        + STREAM
    )
    return children.start(
        [sys.executable, str(script)],
        name="app",
        cwd=site.folder,  # where `penstock up` runs: the reporter finds its broker
        log=site.folder / "app.log",
        env={
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": LOOPBACK,
        },
    )


def _watched(site: Site, up: int, app: children.Child) -> dict[str, Any]:
    log = site.folder / "app.log"

    def reached(mark: str) -> bool:
        if app.exit_code is not None:
            raise SystemExit(str(app.failed("it ended too soon")))
        return mark in log.read_text().splitlines()

    until(lambda: reached("BEGIN"), _PATIENCE_SECONDS)
    began = at = time.monotonic()
    worker_seconds = executor_seconds = 0.0
    most = 0
    while not reached("END"):
        time.sleep(0.25)
        now, (workers, executors) = time.monotonic(), java_processes(up)
        worker_seconds += workers * (now - at)
        executor_seconds += executors * (now - at)
        at, most = now, max(most, workers)
    until(lambda: app.exit_code is not None, _PATIENCE_SECONDS)
    return {
        **site.told(app),
        "seconds": round(at - began),
        "worker_seconds": round(worker_seconds),
        "executor_seconds": round(executor_seconds),
        "most_workers": most,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=float, default=1.0, help="each step so many times as long")
    parser.add_argument("--fleet", choices=FLEETS, action="append", help="these only")
    options = parser.parse_args()
    results: dict[str, Any] = {
        "machine": describe(),
        "promise_seconds": PROMISE_SECONDS,
        "steps": STEPS,
    }
    for fleet in options.fleet or FLEETS:
        results[fleet] = measure(fleet, options.times)
        print(json.dumps({fleet: results[fleet]}), file=sys.stderr, flush=True)
    if {"penstock", "fixed"} <= results.keys():
        share = results["penstock"]["worker_seconds"] / results["fixed"]["worker_seconds"]
        results["worker_seconds_share"] = round(share, 2)
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
