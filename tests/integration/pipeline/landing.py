"""Streams to be read by Spark, filled without an installation around them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.bus.protocol import Outgoing
from penstock.bus.publishing import Publisher
from penstock.config import Settings
from penstock.events.envelope import Event, encode
from penstock.events.job import JobStarted
from penstock.pipeline import app
from penstock.pipeline.app import PARTS, Run
from penstock.pipeline.broker.link import Link
from penstock.pipeline.core.options import Reach
from penstock.pipeline.lake.claim import claimed
from penstock.pipeline.lake.storage import Folder
from penstock.pipeline.lake.table import Lake

QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Half the time of a start, for what does not run long enough to be compiled better."""


class Tap:
    """A connection that makes and fills streams."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._publisher = Publisher(link.client, 30.0)
        link.run(self._publisher.open())

    def ask(self, verb: str, body: Any = None) -> dict[str, Any]:
        return self.link.run(self.link.ask(verb, body))

    def make(self, stream: str, subject: str) -> None:
        self.ask(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [subject]})

    def fill(self, subject: str, bodies: Iterable[bytes]) -> None:
        answers = self.link.run(
            self._publisher.append_many([Outgoing(subject, body) for body in bodies])
        )
        assert all(isinstance(answer, int) for answer in answers), answers


@contextmanager
def tap(url: str) -> Iterator[Tap]:
    with Link(Reach(servers=url)) as link:
        yield Tap(link)


def started(number: int) -> bytes:
    """An event that tells which one it is."""
    return encode(
        JobStarted(
            job_id=f"job-{number}",
            queue="q",
            worker="w",
            host="h",
            pickup_seconds=0.5,
            attempt=number,
        )
    )


def catch_up(
    spark: SparkSession,
    settings: Settings,
    folder: Path | str,
    types: Iterable[type[Event]] = (),
    part: str = "events",
    **wanted: Any,
) -> None:
    """What `penstock pipeline run --catch-up` does, for one part of the lake."""
    run = Run(lake=str(folder), catch_up=True, **wanted)
    with claimed(Folder(spark, str(folder))) as claim:
        lake = Lake(spark, f"{folder}/{part}", types or PARTS[part], claim)
        app.start(spark, settings, run, part, lake).awaitTermination()
