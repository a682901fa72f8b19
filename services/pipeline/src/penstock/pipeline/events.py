"""Messages as typed event rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.events.envelope import Event
from penstock.pipeline.core.columns import TEXT, column_name, event_columns

KNOWN, ASIDE = "known", "aside"
MALFORMED, UNKNOWN = "malformed", "unknown"
_BROKEN = "_broken"


def with_event_columns(messages: DataFrame, types: Iterable[type[Event]]) -> DataFrame:
    """Rows of the source ``nats`` with a column for each field of these events.

    ``set`` is ``known``, or ``aside`` with ``event`` saying why: ``malformed`` (no JSON object, no
    type, id or time, or a field that does not fit) or ``unknown`` (a type that is not among these).
    What is aside keeps its bytes in ``raw``; the rest its whole text in ``body``, so that a field
    which a later version added is not lost.

    Args:
        messages: columns sequence, subject, time and data.
    """
    known = list(types)
    fields = event_columns(known)
    parsed = messages.withColumn("_text", f.col("data").cast("string")).withColumn(
        "_event", _parse(f.col("_text"), fields)
    )
    why = _why_aside([event.__name__ for event in known])
    parsed = parsed.withColumn("_why", why)
    kept = f.col("_why").isNull()
    return parsed.select(
        f.col("sequence").alias("stream_sequence"),
        f.col("time").alias("stored_at"),
        "subject",
        *(f.when(kept, f.col(f"_event.{name}")).alias(column_name(name)) for name in fields),
        f.when(kept, f.col("_text")).alias("body"),
        f.when(~kept, f.col("data")).alias("raw"),
        f.when(kept, KNOWN).otherwise(ASIDE).alias("set"),
        f.date_format("time", "yyyy-MM-dd").alias("day"),
        f.coalesce("_why", "_event.type").alias("event"),
    )


def _parse(text: Column, fields: Mapping[str, str]) -> Column:
    schema = ", ".join(f"`{name}` {kind}" for name, kind in {**fields, _BROKEN: TEXT}.items())
    return f.from_json(text, schema, {"columnNameOfCorruptRecord": _BROKEN})


def _why_aside(names: list[str]) -> Column:
    event = f.col("_event")
    untyped = event.isNull() | event["type"].isNull()
    unfit = event[_BROKEN].isNotNull() | event["id"].isNull() | event["at"].isNull()
    return (
        f.when(untyped, MALFORMED).when(~event["type"].isin(names), UNKNOWN).when(unfit, MALFORMED)
    )
