"""One stream's part of the lake: batches land in it once each, whatever is killed and whenever.

A batch has a folder of its own name in each partition, so that landing it again replaces what an
earlier attempt left; its manifest entry, written last, makes it count. The name says which holding
of the lake it was: the Java of a run that was killed may still be writing for a while.
"""

from __future__ import annotations

import logging
import shutil
import uuid
from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path

import msgspec
from pyspark.sql import Column, DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as f

from penstock.events.envelope import Event
from penstock.pipeline.core.columns import columns, shapes
from penstock.pipeline.core.manifest import Entry, File, Whole, batch_name, fold, small_files
from penstock.pipeline.events import ASIDE, MALFORMED, UNKNOWN
from penstock.pipeline.lake.claim import Claim
from penstock.pipeline.lake.storage import Folder

log = logging.getLogger("penstock.pipeline")

PARTITIONS = ("set", "day", "event", "batch")
_PARTITIONS = "set=*/day=*/event=*"
_BATCHES = f"{_PARTITIONS}/batch=*"
_FRESH = "_fresh-"
_MANIFEST = "_manifest"
_QUICK = {
    "parquet.compression.codec.zstd.level": "1",
    "parquet.enable.dictionary#body": "false",  # no two are the same
}
"""For small files; merging them takes the time to compress better."""
TARGET_BYTES = 128 * 1024 * 1024
MERGE_FROM = 16
"""Small files in a partition from which merging them is worth it."""
FOLD_FROM = 100
"""Manifest entries from which one file for all of them is worth it."""


class Lake:
    """Events or snapshots as Parquet; one writer at a time. ``landed``: batches by this process.

    Args:
        uri: the stream's folder, on any Hadoop file system.
        types: the events that runs know.
        claim: the hold on it; None for reading only.
    """

    def __init__(
        self,
        spark: SparkSession,
        uri: str,
        types: Iterable[type[Event]],
        claim: Claim | None = None,
    ) -> None:
        self.spark, self.types, self._claim = spark, list(types), claim
        self.folder = Folder(spark, uri)
        self.landed = 0
        self._newest = ("", Whole(batch="whole"))

    def contents(self) -> Whole:
        """What belongs to the lake now."""
        return fold(self._whole(), self._entries().values())

    def read(self, held: Whole | None = None) -> DataFrame:
        """The rows; columns that a file does not have, of other events or newer ones, are null.

        Args:
            held: as :meth:`contents` returned it; read now where it is None.

        Raises:
            ValueError: nothing has landed yet.
        """
        files = (held or self.contents()).files
        if not files:
            raise ValueError(f"the lake {self.folder.uri} is empty; run 'penstock pipeline run'")
        rows = self._frame(files)
        kinds = columns(shapes(self.types)).items()
        lacking = {name: kind for name, kind in kinds if name not in rows.columns}
        return rows.withColumns({n: f.lit(None).cast(kind) for n, kind in lacking.items()})

    def fresh(self) -> Path | None:
        """A folder of its own for files of a query's tasks; None where Spark has to write."""
        return self.folder.local(f"{_FRESH}{uuid.uuid4().hex}")

    def land(
        self, rows: DataFrame, query: str, number: int, fresh: Path | None = None
    ) -> Entry | None:
        """Stores one batch; None if it is in the lake already.

        Args:
            rows: of events, or of the files with them that tasks wrote into ``fresh``.
        """
        batch = batch_name(query, number)
        path = f"{_MANIFEST}/{batch}.json"
        # Spark repeats a batch that landed just before its checkpoint was lost
        if self._whole().holds(batch) or self.folder.exists(path):
            return None
        attempt = f"{batch}-{self._held().epoch}"
        entry = (
            self._write(rows, batch, attempt)
            if fresh is None
            else self._place(rows.collect(), fresh, batch, attempt)
        )
        self._held()
        # only this makes the batch count: what a crash leaves before it is swept away
        self.folder.write(path, msgspec.json.encode(entry))
        self.landed += 1
        return entry

    def _place(self, written: list[Row], fresh: Path, batch: str, attempt: str) -> Entry:
        """Replaces the files of an earlier attempt at this batch by those of the tasks."""
        self._held()
        for left in self._paths(f"{_PARTITIONS}/batch={attempt}"):
            self.folder.delete(left)
        files = []
        for row in written:
            partition, _, name = row.path.rpartition("/")
            path = f"{partition}/batch={attempt}/{name}"
            files.append(File(path=path, bytes=row.bytes))
            target = self.folder.local(path)
            assert target
            target.parent.mkdir(parents=True, exist_ok=True)
            (fresh / row.path).replace(target)
        shutil.rmtree(fresh, ignore_errors=True)
        return Entry(
            batch=batch,
            rows=sum(row.rows for row in written),
            first=min((row.first for row in written), default=0),
            last=max((row.last for row in written), default=0),
            malformed=sum(row.malformed for row in written),
            unknown=sum(row.unknown for row in written),
            files=tuple(sorted(files, key=attrgetter("path"))),
        )

    def _write(self, rows: DataFrame, batch: str, attempt: str) -> Entry:
        """By Spark's own writer, which replaces what an earlier try left."""
        measured = Observation()
        observed = rows.withColumn("batch", f.lit(attempt)).observe(measured, *_measures())
        writer = observed.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer = writer.options(**_QUICK).partitionBy(*PARTITIONS)
        writer.parquet(self.folder.uri, compression="zstd")
        return Entry(batch=batch, files=self._files(attempt), **measured.get)

    def sweep(self) -> int:
        """Deletes what crashes left, which the manifest does not name; how many folders."""
        self._held()
        named = {file.path.rsplit("/", 1)[0] for file in self.contents().files}
        left = [path for path, _ in self.folder.find(_BATCHES) if path not in named]
        left += [path for glob in (".spark-staging-*", f"{_FRESH}*") for path in self._paths(glob)]
        for path in left:
            self.folder.delete(path)
        return len(left)

    def compact(self, target_bytes: int = TARGET_BYTES, at_least: int = MERGE_FROM) -> int:
        """Merges small files, partition by partition; how many went.

        Readers of the manifest see every row once at every moment; readers of the folders may see
        rows of a partition twice while its old files are being deleted.
        """
        self._held()
        before, entries = self._whole(), self._entries()
        now = fold(before, entries.values())
        merged_away: set[File] = set()
        merged: list[File] = []
        for partition, files in small_files(now.files, target_bytes, at_least):
            merged += self._merge(partition, files, target_bytes)
            merged_away.update(files)
        if not merged_away and len(entries) < FOLD_FROM:
            return 0
        kept = tuple(file for file in now.files if file not in merged_away)
        number = before.number + 1
        whole = msgspec.structs.replace(now, number=number, files=(*kept, *merged))
        self._held()
        self.folder.write(f"{_MANIFEST}/whole-{number:09d}.json", msgspec.json.encode(whole))
        self._forget(number, entries, merged_away)
        return len(merged_away)

    def _held(self) -> Claim:
        """Checked before each write that others can see.

        Raises:
            LakeTaken: another run writes here by now.
        """
        assert self._claim, "this lake was opened for reading"
        self._claim.check()
        return self._claim

    def _merge(self, partition: str, files: Iterable[File], target_bytes: int) -> tuple[File, ...]:
        files = list(files)
        parts = sum(file.bytes for file in files) // target_bytes + 1
        batch = f"merged-{uuid.uuid4().hex[:8]}"
        frame = (
            self._frame(files)
            .drop(*PARTITIONS)
            .coalesce(parts)
            .sortWithinPartitions("stream_sequence")
        )
        frame.write.parquet(f"{self.folder.uri}/{partition}/batch={batch}", compression="zstd")
        return self._files(batch, partition)

    def _forget(self, number: int, entries: dict[str, Entry], merged_away: Iterable[File]) -> None:
        for path in {file.path.rsplit("/", 1)[0] for file in merged_away}:
            self.folder.delete(path)
        for path in entries:
            self.folder.delete(path)
        for path in self._paths(f"{_MANIFEST}/whole-*.json"):
            if path < f"{_MANIFEST}/whole-{number:09d}.json":
                self.folder.delete(path)

    def _frame(self, files: Iterable[File]) -> DataFrame:
        uri = self.folder.uri
        reader = self.spark.read.option("basePath", uri).option("mergeSchema", True)
        return reader.parquet(*(f"{uri}/{file.path}" for file in files))

    def _files(self, batch: str, partition: str = _PARTITIONS) -> tuple[File, ...]:
        paths = self.folder.find(f"{partition}/batch={batch}/*.parquet")
        return tuple(File(path=path, bytes=size) for path, size in paths)

    def _paths(self, pattern: str) -> list[str]:
        return [path for path, _ in self.folder.find(pattern)]

    def _whole(self) -> Whole:
        paths = self._paths(f"{_MANIFEST}/whole-*.json")
        if not paths:
            return Whole(batch="whole")
        if paths[-1] != self._newest[0]:  # its contents never change
            whole = msgspec.json.decode(self.folder.read(paths[-1]), type=Whole)
            self._newest = (paths[-1], whole)
        return self._newest[1]

    def _entries(self) -> dict[str, Entry]:
        paths = self._paths(f"{_MANIFEST}/????????-*.json")
        return {path: msgspec.json.decode(self.folder.read(path), type=Entry) for path in paths}


def _measures() -> list[Column]:
    aside = f.col("set") == ASIDE
    return [
        f.count(f.lit(1)).alias("rows"),
        f.coalesce(f.min("stream_sequence"), f.lit(0)).alias("first"),
        f.coalesce(f.max("stream_sequence"), f.lit(0)).alias("last"),
        *(f.count_if(aside & (f.col("event") == why)).alias(why) for why in (MALFORMED, UNKNOWN)),
    ]
