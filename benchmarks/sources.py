"""Queues of another system, scaled by Penstock, by KEDA's rule and not at all. Prints JSON.

Celery workers take messages from one queue, whose arrivals follow stretches of recorded traces.
Each scaler gets the same messages on a fresh broker:

* *Penstock*: its services as processes, the pool with a promise and a `source`. Like Kubernetes it
  does not look at what other programs of the machine use (`--count-others`);
* *KEDA's rule*: the queue's length over 5, with the documented defaults of KEDA and of Kubernetes'
  autoscaler; workers end as pods do (TERM, and KILL after the grace period);
* *fixed*: the workers that the peak needs.

The traces run ``--factor`` times faster than they were recorded, and so do the clocks of all of
them: KEDA's polls, cool-down, stabilisation and grace period, and Penstock's drain. Starts of
workers, messages and the promise do not.

* *late*: share of messages that did not start within the promise (those never started count);
* *worker-seconds*: of processes that exist, starting and ending ones too, until ``--tail`` seconds
  after the last arrival;
* *work*: seconds that the messages take together, the least that any scaler can pay;
* *interrupted*: messages that started and have no end. The oracle is the task's own log.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter, defaultdict
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from machine import describe
from peer_parts import APPS, environment, redis_server, versions
from penstock.runtime import children
from penstock.runtime.paths import temporary_dir
from source_brokers import BROKERS, QUEUE, Addresses, message_broker, queue_length
from source_load import MEAN_SECONDS, RECORDED, Messages, messages
from source_scalers import SCALERS, Setting, living

FOUND = Path(__file__).resolve().parents[2] / "shared" / "traces"
_STEP_SECONDS, _COUNT_SECONDS = 0.1, 0.25


# --- one run -------------------------------------------------------------------------------------
def run(scaler: Any, load: Messages, options: argparse.Namespace) -> dict[str, Any]:
    """One scaler, one trace."""
    programs = environment(options.cache, "celery")
    with temporary_dir() as folder, _broker(options, folder) as broker:
        oracle, marker = folder / "oracle", f"bench-{os.getpid()}-{time.monotonic_ns()}"
        env = {"SOURCES_URL": broker.url, "SOURCES_ORACLE": str(oracle), "PYTHONPATH": str(APPS)}
        quiet = ("--without-gossip", "--without-mingle", "-l", "INFO")
        worker = [str(programs / "celery"), "-A", "source_app", "worker", "-Q", QUEUE]
        worker += ["-P", "solo", "-c", "1", "--prefetch-multiplier=1"]
        setting = Setting(
            worker=(*worker, *quiet, "-n", f"{{name}}@{marker}"),
            environment=env,
            url=broker.url,
            look_url=broker.amqp_url if options.look == "amqp" else broker.look_url,
            depth_url=broker.amqp_url if options.look == "both" else "",
            folder=folder,
            peak=load.peak,
            most=2 * load.peak,
            factor=options.factor,
            promise_seconds=options.sla,
            mean_seconds=MEAN_SECONDS,
            counts_others=options.count_others,
        )
        plan = folder / "plan"
        pairs = zip(load.arrivals, load.services, strict=True)
        plan.write_text("".join(f"{at:.4f} {seconds:.4f}\n" for at, seconds in pairs), "utf-8")
        with queue_length(broker.url) as length:
            driven = scaler(setting, length)
            try:
                driven.start()
                if scaler.name.startswith("fixed"):
                    _wait_for_workers(folder, load.peak)
                sender = [str(programs / "python"), str(APPS / "source_app.py"), str(plan)]
                sending = children.start(sender, name="sender", log=folder / "sender.log", env=env)
                _until_sent(driven, oracle)
                used, most = _watch(driven, marker, load.arrivals[-1] + options.tail)
                sending.end(10.0)
            finally:
                driven.end()
            left = length()
        judged = judge(oracle.read_text("utf-8"), len(load.arrivals), options.sla)
    seconds = {"work_seconds": round(sum(load.services), 1), "worker_seconds": round(used, 1)}
    return {**judged, **seconds, "most_workers": most, "left": left}


def _broker(options: argparse.Namespace, folder: Path) -> AbstractContextManager[Addresses]:
    return message_broker(options.broker, options.broker_url, options.cache, folder)


def _wait_for_workers(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 60.0
    while sum(" ready." in log.read_text() for log in folder.glob("w*.log")) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{count} workers are not ready after 60 s")
        time.sleep(0.1)


def _until_sent(driven: Any, oracle: Path) -> None:
    """Steps the scaler until the first message is sent: a program takes seconds to start."""
    deadline = time.monotonic() + 60.0
    while not oracle.exists():
        if time.monotonic() > deadline:
            raise TimeoutError("no message is sent after 60 s")
        driven.step()
        time.sleep(_STEP_SECONDS)


def _watch(driven: Any, marker: str, seconds: float) -> tuple[float, int]:
    """Steps the scaler for so long; returns worker-seconds and the largest number of workers."""
    began = counted_at = time.monotonic()
    used, most = 0.0, 0
    while time.monotonic() - began < seconds:
        driven.step()
        now = time.monotonic()
        if now - counted_at >= _COUNT_SECONDS:
            workers = living(marker)
            used += workers * (now - counted_at)
            most, counted_at = max(most, workers), now
        time.sleep(_STEP_SECONDS)
    return used, most


def judge(oracle: str, sent: int, promise_seconds: float) -> dict[str, Any]:
    """What became of the messages, by the log of the tasks themselves.

    Args:
        oracle: lines of event, number, POSIX seconds, process.
        sent: messages that were to be sent.
        promise_seconds: a message starts within this.
    """
    times: dict[str, dict[int, float]] = defaultdict(dict)
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for line in oracle.splitlines():
        event, number, at, _ = line.split()
        times[event].setdefault(int(number), float(at))
        counts[event][int(number)] += 1
    waits = sorted(started - times["sent"][number] for number, started in times["start"].items())
    in_time = sum(wait <= promise_seconds for wait in waits)
    return {
        "messages": sent,
        "late_share": round(1 - in_time / sent, 4),
        "wait_p50_seconds": round(waits[len(waits) // 2], 2) if waits else None,
        "wait_p99_seconds": round(waits[int(len(waits) * 0.99)], 2) if waits else None,
        "never_started": sent - len(waits),
        "interrupted": sum((counts["start"] - counts["end"]).values()),
        "started_twice": sum(count > 1 for count in counts["start"].values()),
    }


# --- all of them ---------------------------------------------------------------------------------
def compare(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Penstock's worker-seconds over those of the others, by trace."""
    by_trace: dict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        by_trace[row["trace"]][row["scaler"]] = row["worker_seconds"]
    return {
        trace: {
            other: round(used["Penstock"] / seconds, 2)
            for other, seconds in used.items()
            if other != "Penstock" and "Penstock" in used and seconds
        }
        for trace, used in by_trace.items()
    }


def main() -> None:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=Path, default=FOUND, help="folder; synthetic ones if none")
    parser.add_argument("--trace", action="append", choices=RECORDED, help="only these")
    parser.add_argument("--scaler", action="append", choices=[one.name for one in SCALERS])
    parser.add_argument("--broker", choices=BROKERS, default="redis")
    parser.add_argument(
        "--look",
        choices=("both", "management", "amqp"),
        default="both",
        help="how Penstock reads RabbitMQ; over AMQP alone by the strategy backlog_only",
    )
    parser.add_argument("--broker-url", default="", help="of a running one; else one is started")
    parser.add_argument("--seconds", type=float, default=75.0, help="of one trace")
    parser.add_argument("--tail", type=float, default=25.0, help="longer than the promise")
    parser.add_argument("--factor", type=float, default=20.0)
    parser.add_argument("--erlang", type=float, default=3.0, help="mean messages in work")
    parser.add_argument("--sla", type=float, default=20.0)
    parser.add_argument(
        "--count-others", action="store_true", help="Penstock leaves others' share of the cores"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=15.0, help="no run begins that may exceed")
    parser.add_argument("--cache", type=Path, default=home / "penstock-peers")
    options = parser.parse_args()
    if options.tail <= options.sla:
        parser.error(f"--tail {options.tail:g}: expected more than the promise, {options.sla:g}")
    machine, ends_at = describe(), time.monotonic() + options.minutes * 60
    programs = environment(options.cache, "celery")
    redis_server(options.cache)
    folder = options.traces if options.traces.is_dir() else None
    rows: list[dict[str, Any]] = []
    skipped = []
    for name in options.trace or RECORDED:
        load = messages(name, folder, options.seconds, options.factor, options.erlang, options.seed)
        for scaler in SCALERS:
            if options.scaler and scaler.name not in options.scaler:
                continue
            if time.monotonic() + options.seconds + options.tail + 40.0 > ends_at:
                skipped.append(f"{scaler.name}, {name}")
                continue
            busy = round(os.getloadavg()[0], 2)
            row = {"trace": load.trace, "scaler": scaler.name, "peak": load.peak, "load": busy}
            rows.append({**row, **run(scaler, load, options)})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    kept = ("look", "seconds", "tail", "factor", "erlang", "sla", "seed", "count_others")
    result = {
        "machine": machine,
        "broker": options.broker,
        "versions": versions(programs, ["celery", "kombu", "redis"]),
        "options": {name: getattr(options, name) for name in kept},
        "clocks": f"{options.factor:g} times faster: KEDA polls each {30 / options.factor:g} s, "
        f"cool-down, stabilisation {300 / options.factor:g} s, grace {30 / options.factor:g} s",
        "rows": rows,
        "penstock_over": compare(rows),
        "skipped": skipped,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
