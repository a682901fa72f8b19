"""The rollups of a lake: read, and brought up to date with what has landed since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.core.rolled import Promise, State
from penstock.pipeline.core.rollup import JOBS, POOLS, TABLES, Grain, Table
from penstock.pipeline.lake.claim import Claim
from penstock.pipeline.lake.rollup_rows import (
    OPEN,
    grains,
    job_minutes,
    known_jobs,
    pool_minutes,
    still_open,
)
from penstock.pipeline.lake.storage import Folder
from penstock.pipeline.lake.table import Lake

_STATE = "_state"
_SOURCES = {"events": JOBS, "snapshots": POOLS}
_LEFT = ("*/grain=*/day=*/version=*", "_open/version=*")
_COLUMNS = {
    "events": {
        "stream_sequence": "bigint",
        "event": "string",
        "at": "timestamp",
        "job_id": "string",
        "queue": "string",
        "function": "string",
        "due_at": "timestamp",
        "pickup_seconds": "double",
        "run_seconds": "double",
        "cpu_seconds": "double",
        "spark_cost": "string",
        "put_off": "string",
    },
    "snapshots": {
        "stream_sequence": "bigint",
        "event": "string",
        "at": "timestamp",
        "pool": "string",
        "waiting": "bigint",
        "workers_ready": "bigint",
        "oldest_waiting_seconds": "double",
    },
}
"""Columns that are read from the lake; an older lake may lack some."""


class Minutes(msgspec.Struct, frozen=True):
    """One table by the minute, if there is one yet, and the last stream sequence that is in it."""

    rows: DataFrame | None = None
    through: int = 0

    def left(self, landed: DataFrame) -> DataFrame:
        """Of a lake's rows those that are not in the table."""
        return landed.where(f.col("stream_sequence") > self.through) if self.through else landed


NOTHING = Minutes()


class Rollups:
    """Tables of `penstock.pipeline.core.rollup` beside a lake.

    Args:
        lake: the lake's folder, above ``events`` and ``rollups``.
        claim: None for reading only.
    """

    def __init__(self, spark: SparkSession, lake: str, claim: Claim | None = None) -> None:
        self._spark, self._claim = spark, claim
        self.folder = rollups_folder(spark, lake)

    def state(self) -> State:
        """How far they are; nothing yet where there are none."""
        states = [path for path, _ in self.folder.find(f"{_STATE}/*.json")]
        return msgspec.json.decode(self.folder.read(states[-1]), type=State) if states else State()

    def read(self, table: str, grain: Grain = "minute") -> DataFrame:
        """One table by the minute, hour or day, with columns ``grain`` and ``day``.

        Raises:
            ValueError: no such table, or none yet.
        """
        if table not in TABLES:
            raise ValueError(f"expected one of the tables {', '.join(TABLES)}, found {table!r}")
        folders = self.state().folders(table, grain)
        if not folders:
            raise ValueError(
                f"there are no rollups {table} in {self.folder.uri}; run 'penstock pipeline rollup'"
            )
        return self._frame(table, folders)

    def minutes(self, part: str) -> Minutes:
        """What is summed up of a part of the lake; what landed since is not in it."""
        state, table = self.state(), _SOURCES[part].name
        folders = state.folders(table, "minute")
        return Minutes(self._frame(table, folders), state.through[part]) if folders else NOTHING

    def refresh(self, lakes: Mapping[str, Lake], promises: Mapping[str, Promise]) -> State:
        """Takes in what has landed since; nothing changes where nothing has.

        A day that something belongs to is written anew, beside the old one, which counts until the
        state is written; so a crash leaves what was there before.

        Args:
            lakes: parts ``events`` and ``snapshots``.
            promises: by queue.

        Raises:
            LakeTaken: another one is at it.
        """
        assert self._claim, "these rollups were opened for reading"
        before = self.state()
        self._sweep(before)
        number = before.number + 1
        version = f"{number:06d}-{self._claim.epoch}"
        now = msgspec.structs.replace(before, number=number)
        for part, table in _SOURCES.items():
            now = self._take_in(part, table, lakes[part], now, version, promises)
        if now.through == before.through:
            return before
        self._claim.check()
        self.folder.write(f"{_STATE}/{number:09d}.json", msgspec.json.encode(now))
        self._sweep(now)
        return now

    def _take_in(
        self,
        part: str,
        table: Table,
        lake: Lake,
        before: State,
        version: str,
        promises: Mapping[str, Promise],
    ) -> State:
        held = lake.contents()
        done = before.through.get(part, 0)
        if held.last <= done:
            return before
        days = f.col("day") >= f.date_sub(f.lit(before.day.get(part, "1970-01-02")), 1)
        landed = lake.read(held).where((f.col("set") == "known") & days)
        fresh = landed.where(f.col("stream_sequence") > done)
        rows = _narrow(fresh, _COLUMNS[part]).cache()
        newest = fresh.agg(f.max("day").cast("string")).first()
        state = msgspec.structs.replace(
            before,
            through={**before.through, part: held.last},
            day={**before.day, part: (newest and newest[0]) or before.day.get(part, "1970-01-02")},
        )
        if table is POOLS:
            state = self._merge(table, pool_minutes(rows), state, version)
        else:
            jobs = known_jobs(rows, self._open(before))
            minutes = job_minutes(rows, jobs, promises, self._spark)
            state = self._merge(table, minutes, state, version)
            still_open(jobs, rows).write.parquet(f"{self.folder.uri}/_open/version={version}")
            state = msgspec.structs.replace(state, open=f"_open/version={version}")
        rows.unpersist()
        return state

    def _merge(self, table: Table, minutes: DataFrame, state: State, version: str) -> State:
        """Writes the days that these minutes belong to, with what they had before."""
        fresh = minutes.cache()
        touched = fresh.select(f.date_format("start", "yyyy-MM-dd")).distinct().collect()
        days = sorted(row[0] for row in touched)
        before = state.folders(table.name, "minute", days)
        if before:
            had = self._frame(table.name, before).select(*fresh.columns)
            minutes = fresh.unionByName(had)
        rows = grains(table, minutes).withColumn("version", f.lit(version))
        (
            rows.repartition("grain", "day")
            .sortWithinPartitions("start")
            .write.mode("append")
            .partitionBy("grain", "day", "version")
            .parquet(f"{self.folder.uri}/{table.name}", compression="zstd")
        )
        fresh.unpersist()
        written = self.folder.find(f"{table.name}/grain=*/day=*/version={version}")
        fresh_versions = {path.rpartition("/")[0]: version for path, _ in written}
        return msgspec.structs.replace(state, versions={**state.versions, **fresh_versions})

    def _open(self, state: State) -> DataFrame:
        if not state.open:
            return self._spark.createDataFrame([], OPEN)
        return self._spark.read.schema(OPEN).parquet(f"{self.folder.uri}/{state.open}")

    def _frame(self, table: str, folders: Iterable[str]) -> DataFrame:
        place = f"{self.folder.uri}/{table}"
        reader = self._spark.read.option("basePath", place).option("mergeSchema", True)
        rows = reader.parquet(*(f"{self.folder.uri}/{folder}" for folder in folders))
        return rows.drop("version").withColumn("day", f.col("day").cast("string"))

    def _sweep(self, state: State) -> None:
        """Deletes what does not count."""
        assert self._claim
        self._claim.check()
        counts = {f"{partition}/version={v}" for partition, v in state.versions.items()}
        counts |= {state.open, f"{_STATE}/{state.number:09d}.json"}
        globs = (*_LEFT, f"{_STATE}/*.json", "_fresh-*")
        for path in (path for glob in globs for path, _ in self.folder.find(glob)):
            if path not in counts:
                self.folder.delete(path)


def rollups_folder(spark: SparkSession, lake: str) -> Folder:
    return Folder(spark, f"{lake.rstrip('/')}/rollups")


def _narrow(rows: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    have = set(rows.columns)
    return rows.select(
        *(
            (f.col(name) if name in have else f.lit(None)).cast(kind).alias(name)
            for name, kind in columns.items()
        )
    )
