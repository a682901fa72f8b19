"""Messages as Arrow record batches: the columns of the data source."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.bus.wire import parse_headers
from penstock.pipeline.broker.pulling import Message

DDL = "sequence bigint, subject string, time timestamp, headers map<string,string>, data binary"
SCHEMA = pa.schema(
    [
        ("sequence", pa.int64()),
        ("subject", pa.string()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("data", pa.binary()),
    ]
)


def record_batch(messages: Sequence[Message], with_headers: bool) -> pa.RecordBatch:
    """One batch of :data:`SCHEMA`; ``headers`` are null where there are none or none are wanted."""
    columns = [
        [message.sequence for message in messages],
        [message.subject for message in messages],
        [message.time_ns // 1000 for message in messages],
        [_headers(message.headers) if with_headers else None for message in messages],
        [message.body for message in messages],
    ]
    arrays = [
        pa.array(column, type=field.type) for column, field in zip(columns, SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _headers(block: bytes | None) -> list[tuple[str, str]] | None:
    return list(parse_headers(block)[1].items()) if block else None
