"""What a no-op job leaves in the event log, and how fast such jobs run. Prints JSON.

Real broker, dispatcher and workers, as in throughput.py. The configurations are run in turns, so
that other work on the machine falls on all of them; each run has a fresh broker and store.

Bytes in the log are those that the broker counts in the stream's state; bytes on disk are those of
the stream's folder (`du`) after the broker was stopped, which writes out what it holds in memory.
The broker compresses a block of the log (up to 8 MB) when it begins the next one: a short log is
not compressed.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from machine import describe
from noop_crew import EVENTS_PER_JOB, settings_for
from penstock.bus.nats import NatsBus, connect
from penstock.config import Settings
from penstock.events.subjects import Subjects
from penstock.runtime.broker import Broker
from penstock.runtime.paths import temporary_dir
from throughput import WARM_JOBS, throughput

AS_IS = "as-is"
"""The default of the version that is measured; the only one of a version without the setting."""
SAMPLED_JOBS = 300
EXAMPLE = """\
example:
  python benchmarks/log_bytes.py --jobs 40000 --repeat 3 --compression none s2
"""


def configured(settings: Settings, compression: str) -> Settings:
    if compression == AS_IS:
        return settings
    streams = replace(settings.streams, compression=compression)
    return replace(settings, streams=streams)


async def run(settings: Settings, broker: Broker, workers: int, jobs: int) -> dict[str, Any]:
    """Jobs a second, and what the broker says about its log afterwards."""
    speed = await throughput(settings, broker, workers, jobs)
    bus = await connect(settings)
    info = await bus._api(f"STREAM.INFO.{Subjects().events_stream}")
    row = {
        **speed,
        "compression": info["config"].get("compression", "none"),
        "events_per_job": round(info["state"]["messages"] / (jobs + WARM_JOBS), 2),
        "log_bytes_per_job": round(info["state"]["bytes"] / (jobs + WARM_JOBS)),
        "kinds": await by_kind(bus, info["state"]),
    }
    await bus.close()
    return row


async def by_kind(bus: NatsBus, state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Mean bytes of each kind of event: subject, header block, body, and the broker's own."""
    count = SAMPLED_JOBS * EVENTS_PER_JOB
    step = max((state["last_seq"] - state["first_seq"]) // count, 1)
    sizes: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for sequence in range(state["first_seq"], state["last_seq"], step):
        request = {"seq": sequence}
        answer = await bus._api(f"STREAM.MSG.GET.{Subjects().events_stream}", request)
        message = answer["message"]
        headers, body = (len(base64.b64decode(message.get(key, ""))) for key in ("hdrs", "data"))
        kind = message["subject"].rpartition(".")[2]
        sizes[kind].append((len(message["subject"]), headers, body))
    return {
        kind: dict(zip(("subject", "headers", "body"), means, strict=True))
        for kind, rows in sizes.items()
        if len(rows) > count // 10
        for means in [[round(statistics.fmean(column)) for column in zip(*rows, strict=True)]]
    }


def on_disk(folder: Path) -> int:
    """Bytes that the files below take on the disk, as `du` counts them."""
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())


def measure(compression: str, workers: int, jobs: int) -> dict[str, Any]:
    with temporary_dir() as store:
        with Broker(store) as broker:
            settings = configured(settings_for(broker.url), compression)
            row = asyncio.run(run(settings, broker, workers, jobs))
        [folder] = store.rglob(f"streams/{Subjects().events_stream}")
        return row | {"disk_bytes_per_job": round(on_disk(folder) / (jobs + WARM_JOBS))}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of the figures, and the single runs where they scatter."""
    medians = {
        key: statistics.median(row[key] for row in rows)
        for key, value in rows[0].items()
        if isinstance(value, int | float)
    }
    return {
        "compression": rows[0]["compression"],
        **medians,
        "runs_jobs_per_second": [row["jobs_per_second"] for row in rows],
        "runs_broker_cpu_us_per_job": [row["broker_cpu_us_per_job"] for row in rows],
        "kinds": rows[-1]["kinds"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=40_000, help="jobs in a run (40000)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each configuration (3)")
    parser.add_argument("--workers", type=int, default=1, help="worker processes (1)")
    parser.add_argument(
        "--compression",
        nargs="+",
        choices=("none", "s2", AS_IS),
        default=["none", "s2"],
        help="of the event log, run in turns (none s2); as-is: the version's default",
    )
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    report: dict[str, Any] = {"benchmark": "log_bytes", "machine": describe(), "jobs": options.jobs}
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in options.compression}
    for _ in range(options.repeat):
        for name, runs in rows.items():
            runs.append(measure(name, options.workers, options.jobs))
    report |= {f"compression_{name}": summary(runs) for name, runs in rows.items()}
    report["load_after"] = round(os.getloadavg()[0], 2)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    main()
