"""Events from stream to Parquet: how many a second, on `local[2]`, at 500 bytes.

python benchmarks/pipeline.py [--events 400000] [--master local[2]]

Prints JSON. The first catch-up of a few events is not measured: it starts Python workers and
compiles. Measured: reading from the broker, typed columns, Parquet, manifest.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from typing import Any

from penstock.bus.protocol import Outgoing
from penstock.bus.publishing import Publisher
from penstock.config.load import check
from penstock.events.envelope import encode
from penstock.events.job import JobDispatched
from penstock.pipeline import app
from penstock.pipeline.core.options import Reach
from penstock.pipeline.lake import Lake
from penstock.pipeline.link import Link
from penstock.pipeline.session import spark_session
from penstock.pipeline.source import register
from penstock.runtime.broker import Broker

BYTES = 500
WARM = 2_000
ROUND = 1_000


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--events", type=int, default=400_000)
    asked.add_argument("--master", default="local[2]")
    options = asked.parse_args()
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(broker.url, folder, options.events, options.master), indent=2))


def measure(url: str, folder: str, events: int, master: str) -> dict[str, Any]:
    settings = check({"nats": {"url": url}})
    with spark_session(master) as spark:
        register(spark)
        lake = Lake(spark, f"{folder}/events", app.PARTS["events"])
        wanted = app.Run(lake=folder, catch_up=True)

        def catch_up() -> float:
            began = time.perf_counter()
            app.start(spark, settings, wanted, "events", lake).awaitTermination()
            return time.perf_counter() - began

        fill(url, WARM)
        catch_up()
        fill(url, events)
        seconds = catch_up()
        held = lake.contents()
    assert held.rows == WARM + events, held.rows
    return {
        "events": events,
        "bytes_each": BYTES,
        "master": master,
        "seconds": round(seconds, 2),
        "events_per_second": round(events / seconds),
        "parquet_bytes": sum(file.bytes for file in held.files),
        "load_average": os.getloadavg()[0],
    }


def fill(url: str, count: int) -> None:
    with Link(Reach(servers=url)) as link:
        config = {"name": "EVENTS", "subjects": ["penstock.events.*.*.*"]}
        link.run(link.ask("STREAM.CREATE.EVENTS", config))
        publisher = Publisher(link.client, 60.0)
        link.run(publisher.open())
        for start in range(0, count, ROUND):
            numbers = range(start, min(start + ROUND, count))
            link.run(publisher.append_many([event(number) for number in numbers]))


def event(number: int) -> Outgoing:
    made = JobDispatched(job_id=f"job-{number}", queue="q", function="f", payload=b"")
    short = BYTES - len(encode(made))
    padded = JobDispatched(
        id=made.id,
        at=made.at,
        job_id=made.job_id,
        queue="q",
        function="f" + "x" * short,
        payload=b"",
    )
    return Outgoing(f"penstock.events.job.{made.job_id}.JobDispatched", encode(padded))


if __name__ == "__main__":
    main()
