"""The pipeline in this process: two streams into the lake, until it is stopped or has caught up."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from penstock.config import Settings
from penstock.config.settings import Nats
from penstock.config.topology import pools
from penstock.events.catalogue import LOGGED
from penstock.events.envelope import Codec
from penstock.events.record import RECORDS
from penstock.events.snapshot import SNAPSHOTS
from penstock.events.subjects import Subjects
from penstock.pipeline.core.manifest import Whole
from penstock.pipeline.core.rolled import Promise, State
from penstock.pipeline.events import option
from penstock.pipeline.lake.claim import Claim, claimed
from penstock.pipeline.lake.restarting import RestartedQueries, in_sessions
from penstock.pipeline.lake.rollups import Rollups, rollups_folder
from penstock.pipeline.lake.storage import Folder
from penstock.pipeline.lake.table import Lake
from penstock.pipeline.session import spark_session
from penstock.pipeline.source import register

log = logging.getLogger("penstock.pipeline")

PARTS = {"events": LOGGED, "snapshots": Codec(*SNAPSHOTS, *RECORDS)}
"""Folders of the lake, and what is known in each."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `penstock pipeline run`.

    Attributes:
        lake: folder on any Hadoop file system.
        master: Spark's, such as ``local[2]``.
        catch_up: end when all that was stored at the start has landed; else go on.
        every_seconds: from batch to batch.
        max_messages: at most so many of a stream in a batch.
        compact_every: batches of a stream after which small files are merged.
        rollup: bring the rollups up to date at the end; with ``catch_up`` only.
    """

    lake: str
    master: str = "local[2]"
    catch_up: bool = False
    every_seconds: Annotated[float, Meta(gt=0)] = 5.0
    max_messages: Annotated[int, Meta(gt=0)] = 200_000
    compact_every: Annotated[int, Meta(gt=0)] = 200
    rollup: bool = False


def run(settings: Settings, wanted: Run) -> dict[str, Whole]:
    """Lands events and snapshots until caught up, or for ever; what the lake holds then.

    Raises:
        LakeTaken: another run writes to this lake.
        QueryFailed: a stream cannot be read or the lake not written; start it again.
    """
    return in_sessions(partial(_in_session, settings, wanted))


def _in_session(settings: Settings, wanted: Run) -> dict[str, Whole]:
    with spark_session(wanted.master) as spark, claimed(Folder(spark, wanted.lake)) as claim:
        register(spark)
        lakes = {name: _lake(spark, wanted.lake, name, claim) for name in PARTS}
        starts = {
            name: partial(start, spark, settings, wanted, name, lake)
            for name, lake in lakes.items()
        }
        for some in [{name: one} for name, one in starts.items()] if wanted.catch_up else [starts]:
            RestartedQueries(
                spark, some, lambda name: lakes[name].landed, claim.yield_to_newer
            ).run()
            for name in some:
                lakes[name].compact()
        if wanted.catch_up and wanted.rollup:
            _roll(spark, settings, wanted.lake, lakes)
        return {name: lake.contents() for name, lake in lakes.items()}


def _lake(spark: SparkSession, uri: str, name: str, claim: Claim | None = None) -> Lake:
    return Lake(spark, f"{uri.rstrip('/')}/{name}", PARTS[name], claim)


def start(
    spark: SparkSession, settings: Settings, wanted: Run, name: str, lake: Lake
) -> StreamingQuery:
    """The query that lands one stream; what a crash left behind goes first."""
    if left := lake.sweep():
        log.warning("%s: deleted %d folders of a run that was cut off", name, left)
    checkpoint, fresh = f"{lake.folder.uri}/_checkpoint", lake.fresh()
    source = spark.readStream.format("nats").options(
        **source_options(settings.nats),
        stream=getattr(Subjects(settings.prefix), f"{name}_stream"),
        headers="false",
        events=option(lake.types),
        max_messages=str(wanted.max_messages),
        start=_start_position(lake),
        land=str(fresh or ""),
    )
    writer = (
        source.load()
        .writeStream.queryName(name)
        .option("checkpointLocation", checkpoint)
        .foreachBatch(partial(_land, lake, name, wanted.compact_every, fresh))
    )
    if wanted.catch_up:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{wanted.every_seconds} seconds").start()


def _start_position(lake: Lake) -> str:
    """Behind what the lake holds; counts only where its checkpoint was lost."""
    last = lake.contents().last
    return str(last + 1) if last else "earliest"


def _land(
    lake: Lake, name: str, compact_every: int, fresh: Path | None, rows: DataFrame, number: int
) -> None:
    query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    assert query
    entry = lake.land(rows, query.replace("-", ""), number, fresh)
    if entry is not None:
        aside = entry.malformed + entry.unknown
        log.info("%s: batch %d, %d rows, %d aside", name, number, entry.rows, aside)
    if number % compact_every == compact_every - 1:
        lake.compact()


def source_options(nats: Nats) -> dict[str, str]:
    """The broker's address and credentials as options of the data source."""
    options = {
        "servers": nats.url,
        "nkey": nats.nkey_file,
        "credentials": nats.credentials_file,
        "user": nats.user,
        "password": nats.password,
        "ca_file": nats.ca_file,
        "broker_user": nats.broker_user,
    }
    return {name: value for name, value in options.items() if value}


@contextmanager
def opened(lake: str, master: str = "local[2]") -> Iterator[dict[str, Lake]]:
    """The lake's parts, with a session of their own."""
    with spark_session(master) as spark:
        yield {name: _lake(spark, lake, name) for name in PARTS}


def rollup(settings: Settings, lake: str, master: str = "local[2]") -> State:
    """Takes into the rollups what has landed in the lake since; may run beside a run.

    Raises:
        LakeTaken: another rollup is running.
    """
    with spark_session(master) as spark:
        return _roll(spark, settings, lake, {name: _lake(spark, lake, name) for name in PARTS})


def _roll(spark: SparkSession, settings: Settings, lake: str, lakes: dict[str, Lake]) -> State:
    promises = {
        queue: Promise(pool.name, float(pool.profile.sla_seconds))
        for pool in pools(settings).values()
        for queue in pool.queues
    }
    with claimed(rollups_folder(spark, lake)) as claim:
        rollups = Rollups(spark, lake, claim)
        while True:
            before = [part.contents().number for part in lakes.values()]
            try:
                return rollups.refresh(lakes, promises)
            except PySparkException:
                if before == [part.contents().number for part in lakes.values()]:
                    raise  # else a compaction took away what was being read


def compact(lake: str, master: str = "local[2]") -> dict[str, int]:
    """Merges small files; how many of each part went.

    Raises:
        LakeTaken: a run writes there, which merges by itself.
    """
    with spark_session(master) as spark, claimed(Folder(spark, lake)) as claim:
        return {name: _lake(spark, lake, name, claim).compact() for name in PARTS}
