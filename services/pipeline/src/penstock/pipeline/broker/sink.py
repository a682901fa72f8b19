"""Rows as JetStream messages, each with an id by which the broker drops what comes twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from penstock.bus.protocol import BusError, Outgoing
from penstock.bus.publishing import Publisher
from penstock.pipeline.broker.link import Link
from penstock.pipeline.core.options import BadOption, WriteOptions

MESSAGE_ID = "Nats-Msg-Id"
_COLUMNS = {"subject", "data", "headers", "message_id"}


class BatchSink(DataSourceArrowWriter):  # type: ignore[misc]
    """`df.write.format("nats")`: a task that is repeated sends its rows again.

    With a column ``message_id`` the broker drops what it saw within the stream's duplicate window.

    Raises:
        BadOption: columns that cannot be written.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(options, set(schema.fieldNames()))
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return send(self._options, iterator, "")


class StreamSink(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """`df.writeStream.format("nats")`: ids of query, batch, task and row where none are given.

    They are the same when a batch is repeated, provided that its rows come in the same order, as
    those of the source ``nats`` do as long as nothing shuffles them.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(options, set(schema.fieldNames()))
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = TaskContext.get()
        assert task
        query = task.getLocalProperty("sql.streaming.queryId")
        batch = task.getLocalProperty("streaming.sql.batchId")
        return send(self._options, iterator, f"{query}:{batch}:{task.partitionId()}:")


def check_columns(options: WriteOptions, columns: set[str]) -> None:
    wanted = {"data"} | (set() if options.subject else {"subject"})
    if not wanted <= columns <= _COLUMNS:
        raise BadOption(
            f"sink nats: found columns {sorted(columns)}, expected data, subject (or the option "
            "subject), and perhaps headers and message_id"
        )


def send(options: WriteOptions, batches: Iterator[pa.RecordBatch], ids: str) -> WriterCommitMessage:
    """Publishes all rows and awaits the broker's word for each.

    Args:
        ids: what the ids of rows without their own begin with; empty gives them none.

    Raises:
        BusError: a message was refused or not answered; Spark runs the task again.
    """
    with Link(options) as link:
        publisher = Publisher(link.client, options.timeout_seconds)
        link.run(publisher.open())
        sent = 0
        for batch in batches:
            for start in range(0, batch.num_rows, options.in_flight):
                rows = batch.slice(start, options.in_flight).to_pylist()
                outgoing = [
                    _outgoing(row, options.subject, f"{ids}{sent + number}" if ids else "")
                    for number, row in enumerate(rows)
                ]
                for answer in link.run(publisher.append_many(outgoing)):
                    if isinstance(answer, BusError):
                        raise answer
                sent += len(rows)
    return WriterCommitMessage()


def _outgoing(row: dict[str, Any], subject: str, message_id: str) -> Outgoing:
    headers = dict(row.get("headers") or ())
    if chosen := row.get("message_id") or headers.get(MESSAGE_ID) or message_id:
        headers[MESSAGE_ID] = chosen
    data = row["data"]
    body = data.encode() if isinstance(data, str) else bytes(data or b"")
    return Outgoing(row.get("subject") or subject, body, headers)
