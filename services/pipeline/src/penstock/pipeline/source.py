"""`spark.read.format("nats")`, `spark.readStream.format("nats")` and the sinks of that name."""

from __future__ import annotations

import gc
from collections.abc import Iterator, MutableMapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.pipeline.broker.link import Link
from penstock.pipeline.broker.pulling import DDL, read_range, record_batch, sequence_before
from penstock.pipeline.broker.sink import BatchSink, StreamSink
from penstock.pipeline.core.options import BadOption, ReadOptions, WriteOptions, parse, position
from penstock.pipeline.core.ranges import Extent, Range, advance, initial, split
from penstock.pipeline.events import decoder
from penstock.pipeline.lake import landing

_ALLOCATIONS = 500_000
"""Between two looks of Python's collector: a chunk is many objects that live for a moment, none of
them in a circle, and looking at them took half of the time."""


def register(spark: SparkSession) -> None:
    """Makes the format ``nats`` known to a session; once each.

    Spark puts into the environment of a registered source from the thread of each query that
    starts, unguarded (``PythonStreamingSourceRunner.init``). Two queries that started at once broke
    its HashMap for good: no task could be read any more. So it gets a map made for that.
    """
    java = getattr(spark, "_jvm", None)
    if java is None:  # a Connect client: the map is the server's
        spark.dataSource.register(NatsSource)
        return
    context: Any = spark.sparkContext
    plain = context.environment
    context.environment = java.java.util.concurrent.ConcurrentHashMap(plain)
    try:
        spark.dataSource.register(NatsSource)
    finally:
        context.environment = plain


class NatsSource(DataSource):  # type: ignore[misc]
    """JetStream messages as rows; see docs/pipeline.md for its options."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = options

    @classmethod
    def name(cls) -> str:
        return "nats"

    def schema(self) -> str:
        given = {name.lower(): value for name, value in self.options.items()}
        if given.get("land"):
            return landing.DDL
        return decoder(given["events"]).ddl if given.get("events") else DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(parse(ReadOptions, self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(parse(ReadOptions, self.options))

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        return BatchSink(parse(WriteOptions, self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        return StreamSink(parse(WriteOptions, self.options), schema)


def _partitions(options: ReadOptions, first: int, last: int) -> list[InputPartition]:
    return [InputPartition(part) for part in split(first, last, options.partitions)]


def _read(options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    part: Range = partition.value
    gc.set_threshold(_ALLOCATIONS)
    chunks = read_range(options, part.first, part.last)
    if not options.events:
        yield from (record_batch(chunk, options.headers) for chunk in chunks)
        return
    events = decoder(options.events)
    rows = (batch for chunk in chunks for batch in events.batches(chunk))
    if options.land:
        yield landing.land(rows, Path(options.land))
    else:
        yield from map(events.with_all_columns, rows)


def _before(link: Link, options: ReadOptions, extent: Extent) -> int:
    """The sequence behind which reading starts."""
    start = position(options.start)
    if isinstance(start, datetime):
        return sequence_before(link, options, start, extent)
    if isinstance(start, int):
        if start > extent.last + 1:
            raise BadOption(f"option start: found {start}, {options.stream} ends at {extent.last}")
        return start - 1
    return extent.last if start == "new" else max(extent.first - 1, 0)


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """The messages that a stream holds when the query is planned."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with Link(options) as link:
            extent = link.extent(options.stream)
            first = max(_before(link, options, extent) + 1, extent.first)
        return _partitions(options, first, min(options.end_sequence or extent.last, extent.last))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Micro-batches of sequence ranges; Spark's checkpoint holds how far they are."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._link: Link | None = None
        self._target: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_link": None, "_target": None}

    def _extent(self) -> Extent:
        """Asked on a connection that is kept: an idle query asks a hundred times a second."""
        if self._link is None or not self._link.client.is_connected:
            self.stop()
            self._link = Link(self._options).__enter__()
        return self._link.extent(self._options.stream)

    def initialOffset(self) -> dict[str, Any]:
        extent = self._extent()
        assert self._link
        return initial(extent, _before(self._link, self._options, extent))

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._extent().last

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        extent = self._extent()
        if self._target is not None:
            last = max(self._target, start["sequence"])
            extent = Extent(extent.first, min(extent.last, last), extent.made)
        at_most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        assert at_most is not None or isinstance(limit, ReadAllAvailable), limit
        return advance(start, extent, at_most, self._options.on_loss)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return _partitions(self._options, end["after"] + 1, end["sequence"]) if start != end else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)

    def stop(self) -> None:
        if self._link is not None:
            self._link.__exit__(None, None, None)
            self._link = None
