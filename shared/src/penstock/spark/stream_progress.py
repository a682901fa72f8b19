"""Spark's ``StreamingQueryProgress`` as a value of bounded size; of a classic or Connect session.

Text of users, such as addresses of sources and messages of errors, stays where it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from penstock.events.stream_report import MOST_SOURCES, BatchProgress, SourceProgress

_CLASS = re.compile(r"[A-Za-z][A-Za-z0-9_.$]{0,99}")
_MOST_OFFSET_BYTES = 1_000_000
_MOST_ROWS = 10**15
_MOST_RATE = 1e15


def batch_of(progress: Mapping[str, Any]) -> BatchProgress:
    """The batch that a progress event is about.

    Raises:
        KeyError, TypeError, ValueError: it is none of Spark's.
    """
    durations = progress["durationMs"]
    sources = [_source(source) for source in progress["sources"]]
    rows = progress["numInputRows"]
    return BatchProgress(
        batch_id=int(progress["batchId"]),
        triggered_at=posix(progress["timestamp"]),
        rows=_count(sum(source.rows for source in sources) if rows is None else rows),
        seconds=_seconds(durations.get("triggerExecution", progress["batchDuration"])),
        add_seconds=_seconds(durations.get("addBatch", 0)),
        input_rows_per_second=_rate(progress["inputRowsPerSecond"]),
        processed_rows_per_second=_rate(progress["processedRowsPerSecond"]),
        sources=tuple(sources[:MOST_SOURCES]),
    )


def lag_rows(end_offset: str, latest_offset: str) -> int | None:
    """Rows between the end of a batch and the end of its source; None where offsets count no rows.

    They do in Kafka, ``{"topic": {"0": 12}}``, and where an offset is one number. Any other form
    may count files or batches, or hold a time.
    """
    end, latest = _offset(end_offset), _offset(latest_offset)
    if type(end) is int and type(latest) is int:
        return _count(latest - end)
    if not (isinstance(end, dict) and isinstance(latest, dict)):
        return None
    total = 0
    for topic, partitions in latest.items():
        before = end.get(topic, {})
        if not (isinstance(partitions, dict) and isinstance(before, dict)):
            return None
        for partition, offset in partitions.items():
            # A partition that is new begins at an offset that the batch did not see.
            start = before.get(partition, offset)
            if type(offset) is not int or type(start) is not int:
                return None
            total += max(offset - start, 0)
    return _count(total)


def posix(timestamp: str) -> float:
    """POSIX seconds of a time as Spark writes it, ``2026-01-31T12:00:00.000Z``.

    Raises:
        ValueError: it is none.
    """
    time = datetime.fromisoformat(timestamp)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _source(source: Mapping[str, Any]) -> SourceProgress:
    # "KafkaV2[Subscribe[orders]]", "FileStreamSource[s3://key:secret@bucket]": the class alone.
    name = _CLASS.match(str(source["description"]))
    return SourceProgress(
        name=name[0] if name else "",
        rows=_count(source["numInputRows"]),
        lag_rows=lag_rows(str(source["endOffset"]), str(source["latestOffset"])),
    )


def _offset(text: str) -> Any:
    if len(text) > _MOST_OFFSET_BYTES:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _count(value: Any) -> int:
    return min(max(int(value), 0), _MOST_ROWS)


def _seconds(milliseconds: Any) -> float:
    return max(float(milliseconds), 0.0) / 1000


def _rate(value: Any) -> float | None:
    """None for the first batch's, which Spark has as NaN or leaves out."""
    if value is None or not isfinite(float(value)):
        return None
    return min(max(float(value), 0.0), _MOST_RATE)
