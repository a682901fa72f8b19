"""The data source, the sink and the lake on real Spark and a real broker."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.integration.pipeline.landing import Tap, catch_up, started
from tests.making import MakeSettings

from penstock.events.envelope import Event
from penstock.events.job import JobStarted
from penstock.pipeline.app import PARTS
from penstock.pipeline.core.holding import LEASE_SECONDS, LakeTaken, Record
from penstock.pipeline.lake.claim import claimed, this_process
from penstock.pipeline.lake.storage import Folder
from penstock.pipeline.lake.table import Lake

pytestmark = pytest.mark.spark


class Repotted(Event, frozen=True, kw_only=True, tag=True):
    """An event that only a later version knows."""

    pot: int
    queue: str = ""


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


def test_what_spark_changes_from_several_threads_may_be_shared(spark: SparkSession) -> None:
    """A HashMap broke when two queries started at once, and no task could be read any more."""
    sources = spark._jsparkSession.sessionState().dataSourceManager()
    environment = sources.lookupDataSource("nats").dataSourceCls().envVars()
    assert environment.getClass().getName() == "java.util.concurrent.ConcurrentHashMap"
    assert spark.range(1).mapInArrow(lambda rows: rows, "id bigint").count() == 1


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
    lake = Lake(spark, str(tmp_path / "events"), PARTS["events"])  # for reading
    catch_up(spark, settings(), tmp_path, max_messages=10)
    held = lake.contents()
    assert (held.rows, held.malformed, held.unknown, held.last) == (43, 2, 1, 43)
    row = lake.read().where("attempt = 7").first()
    assert row is not None
    assert (row.job_id, row.pickup_seconds, row.event) == ("job-7", 0.5, "JobStarted")
    assert row["at"] is not None
    assert row["run_seconds"] is None  # of other events, of which there is none yet

    water.fill(subject, [started(40)])
    with claimed(Folder(spark, str(tmp_path))) as claim:
        writing = Lake(spark, str(tmp_path / "events"), PARTS["events"], claim)
        assert writing.compact(at_least=2) > 0
    shutil.rmtree(tmp_path / "events" / "_checkpoint")  # what the manifest says is enough
    catch_up(spark, settings(), tmp_path, max_messages=10)
    held = lake.contents()
    assert held.rows == 44
    rows = spark.read.option("mergeSchema", True).parquet(str(tmp_path / "events"))
    assert sorted(row.stream_sequence for row in rows.collect()) == list(range(1, 45))


def test_a_version_that_knows_more_writes_beside_what_is_there(
    spark: SparkSession, water: Tap, settings: MakeSettings, tmp_path: Path
) -> None:
    """The first one by Spark, as on HDFS: ViewFs has everything go through Hadoop."""
    mount = "fs.viewfs.mounttable.default.link./mounted"
    spark._jsc.hadoopConfiguration().set(mount, f"file://{tmp_path}")
    water.make(f"{settings.prefix}_EVENTS", f"{settings.prefix}.events.*.*.*")
    subject = f"{settings.prefix}.events.job.a.JobStarted"
    water.fill(subject, [started(0), b'{"type":"Repotted","id":"1","at":"2026-01-31T00:00:00Z"}'])
    catch_up(spark, settings(), "viewfs:///mounted", [JobStarted])
    later = b'{"type":"Repotted","id":"2","at":"2026-01-31T00:00:00Z","pot":3,"queue":"q"}'
    water.fill(subject, [later, started(1)])
    catch_up(spark, settings(), tmp_path, [JobStarted, Repotted])
    rows = Lake(spark, str(tmp_path / "events"), []).read().orderBy("stream_sequence").collect()
    assert [(row.event, row.pot, row.queue) for row in rows] == [
        ("JobStarted", None, "q"),
        ("unknown", None, None),
        ("Repotted", 3, "q"),
        ("JobStarted", None, "q"),
    ]
    assert b"Repotted" in rows[1].raw  # what was kept aside is there for who knows it now


def test_one_run_at_a_time_has_the_lake(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, str(tmp_path))
    with claimed(folder) as claim:
        refused = rf"is being written to by process {os.getpid()} on .* \(epoch 1\); one run"
        with pytest.raises(LakeTaken, match=refused), claimed(folder):
            pass
        claim.check()
    with claimed(folder) as next_one:
        assert next_one.epoch == 2


def test_a_lake_whose_run_crashed_is_free_at_once(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, str(tmp_path))
    dead = subprocess.Popen(["true"])
    holder = msgspec.structs.replace(this_process(), pid=dead.pid, born=1.0)
    folder.create("_held/000000007.json", msgspec.json.encode(Record(holder=holder, epoch=7)))
    dead.wait()
    began = time.monotonic()
    with claimed(folder) as claim:
        assert claim.epoch == 8
    assert time.monotonic() - began < LEASE_SECONDS / 2


def test_a_run_that_slept_while_another_took_over_writes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = Folder(spark, str(tmp_path))
    with claimed(folder) as claim:
        other = msgspec.structs.replace(this_process(), host="elsewhere")
        newer = msgspec.json.encode(Record(holder=other, epoch=2))
        assert folder.create("_held/000000002.json", newer)
        lake = Lake(spark, str(tmp_path / "events"), PARTS["events"], claim)
        for act in (lake.sweep, lake.compact):
            with pytest.raises(LakeTaken, match=r"on elsewhere \(epoch 2\)"):
                act()
    assert folder.read("_held/000000002.json") == newer
