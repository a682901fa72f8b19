"""A lake of made events, without a broker: the columns that its readers look at."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from penstock.events.envelope import Event, encode
from penstock.events.job import JobCompleted, JobDispatched
from penstock.pipeline.core.manifest import Entry, File, batch_name

MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
_BATCH = batch_name("0" * 32, 0)
_COLUMNS = {
    "at": "timestamp",
    "due_at": "timestamp",
    "job_id": "string",
    "queue": "string",
    "pool": "string",
    "run_seconds": "double",
    "pickup_seconds": "double",
    "workers_ready": "int",
}


def rows(spark: SparkSession, events: Iterable[Event]) -> DataFrame:
    """Stored when they happened."""
    fixed = "set string, day string, event string, batch string, stored_at timestamp, body string"
    wanted = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
    return spark.createDataFrame([_row(event) for event in events], f"{fixed}, {wanted}")


def _row(event: Event) -> tuple[Any, ...]:
    day = event.at.strftime("%Y-%m-%d")
    fields = (getattr(event, name, None) for name in _COLUMNS)
    return ("known", day, event.name, _BATCH, event.at, encode(event).decode(), *fields)


def land(spark: SparkSession, folder: Path, part: str, events: Iterable[Event]) -> None:
    """Files and a manifest, as the pipeline leaves them."""
    place = folder / part
    made = rows(spark, events)
    made.write.partitionBy("set", "day", "event", "batch").parquet(str(place))
    files = tuple(
        File(path=str(path.relative_to(place)), bytes=path.stat().st_size)
        for path in place.rglob("*.parquet")
    )
    manifest = place / "_manifest"
    manifest.mkdir()
    entry = Entry(batch=_BATCH, first=1, last=made.count(), rows=made.count(), files=files)
    (manifest / f"{_BATCH}.json").write_bytes(msgspec.json.encode(entry))


def job(number: int, queue: str, at: datetime, run_seconds: float = 2.0) -> list[Event]:
    """One that came, and ended well."""
    named, ended = f"{queue}-{number}", at + timedelta(seconds=run_seconds)
    done = JobCompleted(job_id=named, queue=queue, attempt=1, run_seconds=run_seconds, at=ended)
    return [JobDispatched(job_id=named, queue=queue, function="f", payload=b"", at=at), done]
