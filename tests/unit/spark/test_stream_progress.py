"""Spark's progress of a streaming query as a value: bounded, and without text of users."""

from __future__ import annotations

import json
from math import nan
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.events.stream_report import BatchProgress, SourceProgress
from penstock.spark.stream_progress import batch_of, lag_rows, posix

KAFKA = {
    "description": "KafkaV2[Subscribe[orders]]",
    "endOffset": '{"orders":{"0":10,"1":20}}',
    "latestOffset": '{"orders":{"0":13,"1":20,"2":5}}',
    "numInputRows": 30,
}


def progress(**fields: Any) -> dict[str, Any]:
    return {
        "batchId": 7,
        "batchDuration": 1500,
        "timestamp": "2026-01-31T12:00:00.500Z",
        "durationMs": {"triggerExecution": 1500, "addBatch": 1200, "walCommit": 30},
        "numInputRows": 30,
        "inputRowsPerSecond": 6.0,
        "processedRowsPerSecond": 20.0,
        "sources": [KAFKA],
        **fields,
    }


def test_a_batch_with_the_lag_that_its_source_knows() -> None:
    assert batch_of(progress()) == BatchProgress(
        batch_id=7,
        triggered_at=posix("2026-01-31T12:00:00.500Z"),
        rows=30,
        seconds=1.5,
        add_seconds=1.2,
        input_rows_per_second=6.0,
        processed_rows_per_second=20.0,
        sources=(SourceProgress(name="KafkaV2", rows=30, lag_rows=3),),
    )


def test_rates_of_a_first_batch_are_none_and_what_is_missing_is_absent() -> None:
    first = batch_of(
        progress(
            inputRowsPerSecond=nan, processedRowsPerSecond=None, numInputRows=None, durationMs={}
        )
    )
    assert (first.input_rows_per_second, first.processed_rows_per_second) == (None, None)
    assert (first.rows, first.seconds, first.add_seconds) == (30, 1.5, 0.0)
    assert msgspec.json.decode(msgspec.json.encode(first), type=BatchProgress) == first


def test_addresses_of_sources_are_left_out() -> None:
    source = {**KAFKA, "description": "FileStreamSource[s3a://key:secret@bucket/in]"}
    [found] = batch_of(progress(sources=[source])).sources
    assert found.name == "FileStreamSource"
    strange = {**KAFKA, "description": "s3a://key:secret@bucket"}
    [found] = batch_of(progress(sources=[strange])).sources
    assert found.name == "s3a"


def test_of_many_sources_the_first_are_named_and_all_rows_counted() -> None:
    batch = batch_of(progress(sources=[KAFKA] * 50, numInputRows=None))
    assert (len(batch.sources), batch.rows) == (8, 1500)


@pytest.mark.parametrize(
    ("end", "latest", "rows"),
    [
        ("5", "9", 4),
        ("9", "5", 0),
        ('{"t":{"0":1}}', '{"t":{"0":1}}', 0),
        ('{"t":{"0":1}}', '{"t":{"0":4},"u":{"0":2}}', 3),
        ('{"logOffset":3}', '{"logOffset":9}', None),  # files, not rows
        ('{"offset":3,"timestamp":1}', '{"offset":4,"timestamp":99}', None),
        ('{"t":{"0":1}}', '{"t":{"0":"4"}}', None),
        ('{"t":{"0":true}}', '{"t":{"0":4}}', None),
        ("None", "None", None),
        ("", "7", None),
        ("[1]", "[2]", None),
        ("true", "3", None),
    ],
)
def test_lag_is_known_where_offsets_count_rows(end: str, latest: str, rows: int | None) -> None:
    assert lag_rows(end, latest) == rows


offsets = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(offsets, offsets)
def test_any_offset_gives_a_count_or_none(end: Any, latest: Any) -> None:
    rows = lag_rows(json.dumps(end), json.dumps(latest))
    assert rows is None or 0 <= rows <= 10**15


def test_deep_offsets_are_no_counts() -> None:
    assert lag_rows("[" * 100_000, "1") is None
