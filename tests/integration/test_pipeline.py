"""The data source, the sink and the lake on real Spark and a real broker."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.integration.landing import Tap, started, tap
from tests.making import MakeSettings

from penstock.pipeline import app
from penstock.pipeline.app import PARTS, Run
from penstock.pipeline.lake import Lake
from penstock.pipeline.session import spark_session
from penstock.pipeline.source import register

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session("local[2]") as spark:
        register(spark)
        yield spark


@pytest.fixture
def water(nats_url: str) -> Iterator[Tap]:
    with tap(nats_url) as opened:
        yield opened


def read(spark: SparkSession, url: str, stream: str, **options: Any) -> DataFrame:
    texts = {name: str(value) for name, value in options.items()}
    return spark.read.format("nats").options(servers=url, stream=stream, **texts).load()


def test_messages_are_rows_and_deleted_ones_leave_no_trace(
    spark: SparkSession, water: Tap, nats_url: str, settings: MakeSettings
) -> None:
    name = settings.prefix
    water.make(name, f"{name}.*")
    water.fill(f"{name}.a", [b"%d" % number for number in range(30)])
    water.fill(f"{name}.b", [b"other"])
    water.ask(f"STREAM.MSG.DELETE.{name}", {"seq": 12})
    found = read(spark, nats_url, name, subjects=f"{name}.a", start=11, fetch=7, partitions=2)
    rows = found.select("sequence", "subject", "data").collect()
    assert [row.sequence for row in rows] == [11, *range(13, 31)]
    assert (rows[0].subject, bytes(rows[0].data)) == (f"{name}.a", b"10")
    assert read(spark, nats_url, name, start=30, end_sequence=30).count() == 1


def test_rows_written_twice_are_stored_once(
    spark: SparkSession, water: Tap, nats_url: str, settings: MakeSettings
) -> None:
    name = settings.prefix
    water.make(name, f"{name}.*")
    rows = spark.createDataFrame(
        [(f"{name}.{number}", b"x", f"id-{number}") for number in range(20)],
        "subject string, data binary, message_id string",
    )
    for _ in range(2):
        rows.write.format("nats").option("servers", nats_url).mode("append").save()
    assert water.link.extent(name).last == 20


def test_the_lake_goes_on_where_it_was_and_keeps_aside_what_it_cannot_read(
    spark: SparkSession, water: Tap, settings: MakeSettings, tmp_path: Path
) -> None:
    events = f"{settings.prefix}_EVENTS"
    water.make(events, f"{settings.prefix}.events.*.*.*")
    subject = f"{settings.prefix}.events.job.a.JobStarted"
    known = [started(number) for number in range(40)]
    water.fill(subject, [*known, b"no json", b"\xff", b'{"type":"Later","id":"1","at":"x"}'])
    lake = Lake(spark, str(tmp_path / "events"), PARTS["events"])
    catch_up(spark, settings, tmp_path, max_messages=10)
    held = lake.contents()
    assert (held.rows, held.malformed, held.unknown, held.last) == (43, 2, 1, 43)
    row = lake.read().where("attempt = 7").first()
    assert row is not None
    assert (row.job_id, row.pickup_seconds, row.event) == ("job-7", 0.5, "JobStarted")
    assert row["at"] is not None

    water.fill(subject, [started(40)])
    assert lake.compact(at_least=2) > 0
    shutil.rmtree(tmp_path / "events" / "_checkpoint")  # what the manifest says is enough
    catch_up(spark, settings, tmp_path, max_messages=10)
    held = lake.contents()
    assert held.rows == 44
    rows = spark.read.option("mergeSchema", True).parquet(str(tmp_path / "events"))
    assert sorted(row.stream_sequence for row in rows.collect()) == list(range(1, 45))


def catch_up(spark: SparkSession, settings: MakeSettings, folder: Path, **wanted: Any) -> None:
    """What `penstock pipeline run --catch-up` does, for the events only."""
    run = Run(lake=str(folder), catch_up=True, **wanted)
    lake = Lake(spark, str(folder / "events"), PARTS["events"])
    app.start(spark, settings(), run, "events", lake).awaitTermination()
