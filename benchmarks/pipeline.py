"""Events from stream to Parquet: how many a second, how late, and whether twice as many take twice.

python benchmarks/pipeline.py [--sizes 50000,100000,200000,400000] [--master local[2]]

Prints JSON. The first catch-ups, while Python processes start and Java compiles, are told as
``cold``. Each time a query is started, reads what was stored since from the broker, makes typed
columns, writes Parquet and manifest, and ends. Then events are published at a steady rate while a
query lands them each second: how long after it was stored an event counts in the lake. Beside it,
in the same run: nats-py's own pull consumer with pyarrow's writer, one process, which keeps the
bytes as they are and no account of where it was.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import nats
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from nats.js.api import AckPolicy, ConsumerConfig

from machine import describe
from penstock.bus.protocol import Outgoing
from penstock.bus.publishing import Publisher
from penstock.config import Settings
from penstock.config.load import check
from penstock.events.envelope import encode
from penstock.events.job import JobDispatched
from penstock.pipeline import app
from penstock.pipeline.broker.link import Link
from penstock.pipeline.core.options import Reach
from penstock.pipeline.lake.claim import claimed
from penstock.pipeline.lake.storage import Folder
from penstock.pipeline.lake.table import Lake
from penstock.pipeline.session import spark_session
from penstock.pipeline.source import register
from penstock.runtime.broker import Broker

STREAM = {"name": "EVENTS", "subjects": ["penstock.events.*.*.*"]}
BYTES = 500
WARM = (2_000, 100_000, 100_000)
ROUND = 1_000
RATE, STEADY_SECONDS, EVERY_SECONDS = 1_000, 30, 1.0
GRAIN = random.Random(1).randbytes(100_000)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--sizes", default="50000,100000,200000,400000")
    asked.add_argument("--master", default="local[2]")
    options = asked.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    machine = describe()
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        found = measure(broker.url, folder, sizes, options.master)
    print(json.dumps({"machine": machine, "bytes_each": BYTES, **found}, indent=2))


def measure(url: str, folder: str, sizes: list[int], master: str) -> dict[str, Any]:
    settings = check({"nats": {"url": url}})
    with spark_session(master) as spark, claimed(Folder(spark, folder)) as claim:
        register(spark)
        lake = Lake(spark, f"{folder}/events", app.PARTS["events"], claim)

        def catch_up(events: int) -> dict[str, Any]:
            fill(url, events)
            began, used = time.perf_counter(), cpu_seconds()
            wanted = app.Run(lake=folder, catch_up=True)
            app.start(spark, settings, wanted, "events", lake).awaitTermination()
            return timed(events, time.perf_counter() - began, cpu_seconds() - used)

        cold = [catch_up(events) for events in WARM]
        runs = [catch_up(events) for events in sizes]
        held = lake.contents()
        assert held.rows == sum(WARM) + sum(sizes), held.rows
        return {
            "master": master,
            "cold": cold,
            "runs": runs,
            "growth": growth(sizes, [run["seconds"] for run in runs]),
            "parquet_bytes_an_event": round(sum(f.bytes for f in held.files) / held.rows),
            "peer_nats_py_and_pyarrow": asyncio.run(plain(url, folder, sizes[-1])),
            "streaming": stream(url, settings, folder, lake),
        }


def timed(events: int, seconds: float, cpu: float) -> dict[str, Any]:
    return {
        "events": events,
        "seconds": round(seconds, 2),
        "events_per_second": round(events / seconds),
        "cpu_microseconds_an_event": round(cpu / events * 1e6, 1),
    }


def growth(sizes: list[int], seconds: list[float]) -> dict[str, float]:
    """A straight line through the runs: what a run costs at all, and what an event costs."""
    slope, start = np.polyfit(sizes, seconds, 1)
    rest = np.array(seconds) - (start + slope * np.array(sizes))
    spread = np.array(seconds) - np.mean(seconds)
    return {
        "seconds_a_run": round(float(start), 2),
        "events_per_second_beyond": round(1 / float(slope)),
        "r_squared": round(1 - float(rest @ rest) / float(spread @ spread), 4),
    }


def stream(url: str, settings: Settings, folder: str, lake: Lake) -> dict[str, Any]:
    """Delay from stored to counting in the lake, at a steady rate."""
    before = lake.contents().last
    wanted = app.Run(lake=folder, every_seconds=EVERY_SECONDS)
    query = app.start(lake.spark, settings, wanted, "events", lake)
    source = threading.Thread(target=fill, args=(url, RATE * STEADY_SECONDS, RATE))
    source.start()
    source.join()
    while lake.contents().last < before + RATE * STEADY_SECONDS:
        time.sleep(0.2)
    query.stop()
    delays = np.array(landed(Path(folder) / "events", before))
    p50, p95 = np.quantile(delays, [0.5, 0.95])
    return {
        "events_per_second": RATE,
        "trigger_seconds": EVERY_SECONDS,
        "delay_p50_seconds": round(float(p50), 2),
        "delay_p95_seconds": round(float(p95), 2),
        "delay_max_seconds": round(float(delays.max()), 2),
    }


def landed(events: Path, after: int) -> list[float]:
    """Of each event behind a sequence: from when the broker stored it to its manifest entry."""
    found: list[float] = []
    for path in events.glob("set=*/day=*/event=*/batch=*/*.parquet"):
        batch = path.parent.name.removeprefix("batch=").rpartition("-")[0]
        entry = events / "_manifest" / f"{batch}.json"
        rows = pq.ParquetFile(path).read(["stream_sequence", "stored_at"]).to_pylist()
        found += [
            entry.stat().st_mtime - row["stored_at"].timestamp()
            for row in rows
            if row["stream_sequence"] > after
        ]
    return found


async def plain(url: str, folder: str, events: int) -> dict[str, Any]:
    """nats-py's pull consumer and pyarrow's writer."""
    connection = await nats.connect(url)
    subscription = await connection.jetstream().pull_subscribe(
        STREAM["subjects"][0],
        stream="EVENTS",
        config=ConsumerConfig(ack_policy=AckPolicy.NONE, mem_storage=True),
    )
    schema = pa.schema(
        [
            ("sequence", pa.int64()),
            ("subject", pa.string()),
            ("at", pa.string()),
            ("data", "binary"),
        ]
    )
    began, used, seen = time.perf_counter(), cpu_seconds(), 0
    with pq.ParquetWriter(f"{folder}/plain.parquet", schema, compression="zstd") as writer:
        while seen < events:
            messages = await subscription.fetch(5_000, timeout=10)
            known = [message.metadata for message in messages]
            columns = [
                [one.sequence.stream for one in known],
                [message.subject for message in messages],
                [one.timestamp.isoformat() for one in known],
                [message.data for message in messages],
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))
            seen += len(messages)
    found = timed(seen, time.perf_counter() - began, cpu_seconds() - used)
    await connection.close()
    return found


def fill(url: str, count: int, rate: float = 0.0) -> None:
    """Publishes events, at so many a second or as fast as can be."""
    with Link(Reach(servers=url)) as link:
        link.run(link.ask("STREAM.CREATE.EVENTS", STREAM))
        publisher = Publisher(link.client, 60.0)
        link.run(publisher.open())
        size, began = (round(rate / 10) or ROUND), time.monotonic()
        for start in range(0, count, size):
            if rate:
                time.sleep(max(began + start / rate - time.monotonic(), 0))
            numbers = range(start, min(start + size, count))
            link.run(publisher.append_many([event(number) for number in numbers]))


def event(number: int) -> Outgoing:
    """Of 500 bytes, with content that does not compress away."""
    made = JobDispatched(job_id=f"job-{number}", queue="q", function="reports.monthly", payload=b"")
    start = number * 97 % (len(GRAIN) - BYTES)
    payload = GRAIN[start : start + (BYTES - len(encode(made))) * 3 // 4]
    full = JobDispatched(
        id=made.id,
        at=made.at,
        job_id=made.job_id,
        queue="q",
        function=made.function,
        payload=payload,
    )
    return Outgoing(f"penstock.events.job.{made.job_id}.JobDispatched", encode(full))


def cpu_seconds() -> float:
    """Of this process and all below it, broker and Java among them."""
    here = psutil.Process()
    total = 0.0
    for process in [here, *here.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


if __name__ == "__main__":
    main()
