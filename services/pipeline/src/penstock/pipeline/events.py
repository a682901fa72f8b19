"""Messages as typed event rows, made where they are read: the lake's columns.

Parsed by msgspec and handed on as Arrow columns, an event costs a third of what Spark's own
``from_json`` takes for so many columns (measured: docs/benchmarks.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Union

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from penstock.events.envelope import EARLIEST_YEAR, LATEST_YEAR, Event
from penstock.pipeline.broker.pulling import Message
from penstock.pipeline.core.columns import Field, Shapes, column_name, columns, shapes

KNOWN, ASIDE = "known", "aside"
MALFORMED, UNKNOWN = "malformed", "unknown"
_ARROW = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "binary": pa.binary(),
}
_BEFORE = {"stream_sequence": "bigint", "stored_at": "timestamp", "subject": "string"}
_BEHIND = {
    "body": "string",
    "raw": "binary",
    "set": "string",
    "day": "string",
    "event": "string",
}
_PYTHON: dict[str, Any] = {
    "string": str,
    "bigint": Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)],
    "double": float,
    "boolean": bool,
    "timestamp": Annotated[datetime, Meta(tz=True)],
}
_EARLIEST_MICROS = int(datetime(EARLIEST_YEAR, 1, 1, tzinfo=UTC).timestamp() - 86_400) * 1_000_000
_LATEST_MICROS = int(datetime(LATEST_YEAR + 1, 1, 2, tzinfo=UTC).timestamp()) * 1_000_000
_UNFIT = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Tagged(msgspec.Struct):
    type: str


def option(types: Iterable[type[Event]]) -> str:
    """These events as the option ``events`` of the source ``nats``, whose rows they then are."""
    return msgspec.json.encode(shapes(types)).decode()


class Decoder:
    """Makes rows of events of these shapes.

    ``set`` is ``known``, or ``aside`` with ``event`` saying why: ``malformed`` (no JSON object, no
    type, id or time, or a field that does not fit) or ``unknown`` (a type that is not among these).
    What is aside keeps its bytes in ``raw``; the rest its whole text in ``body``, so that a field
    which a later version added is not lost. A field that was left out has its default.
    """

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes
        kinds = {**_BEFORE, **columns(shapes), **_BEHIND}
        self.ddl = ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())
        self._schema = pa.schema([(name, _ARROW[kind]) for name, kind in kinds.items()])
        self._bare = self._own_schema(())
        self._own_schemas = {event: self._own_schema(fields) for event, fields in shapes.items()}
        union: Any = Union[tuple(_struct(*event) for event in shapes.items())]  # noqa: UP007
        self._decode = msgspec.json.Decoder(union).decode

    def batches(self, messages: Sequence[Message]) -> Iterator[pa.RecordBatch]:
        """The rows of these messages, a batch for each event, with that event's columns."""
        by_event: defaultdict[str, list[tuple[Message, Any]]] = defaultdict(list)
        for message in messages:
            event = self._event(message.body)
            by_event[event if isinstance(event, str) else type(event).__name__].append(
                (message, event)
            )
        for event, rows in by_event.items():
            yield from self._rows(event, rows)

    def with_all_columns(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of one event with the columns of all of them."""
        own, count = set(rows.schema.names), rows.num_rows
        arrays = [
            rows[field.name] if field.name in own else pa.nulls(count, field.type)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _own_schema(self, fields: Sequence[Field]) -> pa.Schema:
        names = {*_BEFORE, *_BEHIND, "type", *(column_name(field.name) for field in fields)}
        return pa.schema([field for field in self._schema if field.name in names])

    def _event(self, body: bytes) -> Any:
        """An event, or why it is none."""
        try:
            return self._decode(body)
        except _UNFIT:
            pass
        try:
            tag = msgspec.json.decode(body, type=_Tagged).type
        except _UNFIT:
            return MALFORMED
        return MALFORMED if tag in self._shapes else UNKNOWN

    def _rows(self, event: str, rows: list[tuple[Message, Any]]) -> Iterator[pa.RecordBatch]:
        try:
            yield self._batch(event, rows)
        except (pa.ArrowException, ValueError, OverflowError):  # text that is none, for example
            # row by row: one that does not fit must not set the others aside
            if len(rows) == 1:
                yield self._batch(MALFORMED, [(rows[0][0], MALFORMED)])
                return
            for row in rows:
                yield from self._rows(event, [row])

    def _batch(self, event: str, rows: list[tuple[Message, Any]]) -> pa.RecordBatch:
        messages = [message for message, _ in rows]
        columns_by_name = _message_columns(messages)
        bodies = pa.array([message.body for message in messages], pa.binary())
        is_known = event in self._shapes
        columns_by_name |= {"body": bodies.cast(pa.string())} if is_known else {"raw": bodies}
        columns_by_name |= {
            "set": [KNOWN if is_known else ASIDE] * len(rows),
            "event": [event] * len(rows),
        }
        if is_known:
            columns_by_name["type"] = columns_by_name["event"]
            columns_by_name |= _fields(self._shapes[event], [row for _, row in rows])
        schema = self._own_schemas.get(event, self._bare)
        arrays = [
            _array(columns_by_name.get(field.name), field.type, len(rows)) for field in schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


@cache
def decoder(text: str) -> Decoder:
    """The decoder of the option ``events``, kept as a Python worker reads many batches.

    Raises:
        msgspec.ValidationError: no such option.
    """
    return Decoder(msgspec.json.decode(text, type=Shapes))


def _struct(event: str, fields: Sequence[Field]) -> type[msgspec.Struct]:
    members: list[Any] = [
        (field.name, _PYTHON[field.kind])
        if field.required
        else (field.name, msgspec.Raw, msgspec.Raw())
        if field.kind == "json"
        else (field.name, _PYTHON[field.kind] | None, field.default)
        for field in fields
    ]
    return msgspec.defstruct(event, members, tag_field="type", tag=event, kw_only=True, gc=False)


def _message_columns(messages: Sequence[Message]) -> dict[str, Any]:
    nanoseconds = np.array([message.time_ns for message in messages])
    return {
        "stream_sequence": [message.sequence for message in messages],
        "stored_at": nanoseconds // 1000,
        "subject": [message.subject for message in messages],
        "day": np.datetime_as_string(nanoseconds.view("M8[ns]"), unit="D"),
    }


def _fields(fields: Sequence[Field], events: Sequence[Any]) -> dict[str, Any]:
    names = [field.name for field in fields]
    values = zip(*map(attrgetter(*names), events), strict=True)
    return {
        column_name(field.name): [_text(value) for value in column]
        if field.kind == "json"
        else column
        for field, column in zip(fields, values, strict=True)
    }


def _text(value: msgspec.Raw) -> str | None:
    text = bytes(value).decode()
    if text.startswith('"'):
        return msgspec.json.decode(text, type=str)
    return text if text not in {"", "null"} else None


def _array(values: Any, kind: pa.DataType, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, kind)
    array = values if isinstance(values, pa.Array) else pa.array(values, kind)
    if kind == _ARROW["timestamp"]:
        _check_years(array)
    return array


def _check_years(times: pa.Array) -> None:
    """Raises ValueError: in UTC, one is of a year that ``datetime`` has not; see `Instant`."""
    ends = pc.min_max(times.cast(pa.int64()))
    earliest, latest = ends["min"].as_py(), ends["max"].as_py()
    if earliest is not None and not _EARLIEST_MICROS <= earliest <= latest < _LATEST_MICROS:
        raise ValueError(f"expected times of the years {EARLIEST_YEAR} to {LATEST_YEAR}")
