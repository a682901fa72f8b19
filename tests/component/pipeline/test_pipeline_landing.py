"""Event rows as Parquet files, as the tasks that read them write them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from penstock.events.envelope import encode
from penstock.events.job import JobCancelled, JobStarted
from penstock.pipeline.broker.pulling import Message
from penstock.pipeline.core.columns import shapes
from penstock.pipeline.events import Decoder
from penstock.pipeline.lake import landing

NOON = int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()) * 1_000_000_000
DAY = 86_400 * 1_000_000_000


def message(sequence: int, body: bytes, day: int = 0) -> Message:
    return Message(sequence, NOON + day * DAY, "s", body, None)


def written(folder: Path, bodies: list[Message]) -> dict[str, dict[str, Any]]:
    """What was told of each file, by its partition."""
    chunks = [bodies[:3], bodies[3:]]
    decoder = Decoder(shapes([JobStarted, JobCancelled]))
    told = landing.land((rows for chunk in chunks for rows in decoder.batches(chunk)), folder)
    return {row["path"].rpartition("/")[0]: row for row in told.to_pylist()}


def test_a_file_for_each_event_and_day_and_what_is_in_it(tmp_path: Path) -> None:
    began = encode(
        JobStarted(job_id="j", queue="q", worker="w", host="h", pickup_seconds=0.5, attempt=1)
    )
    found = written(
        tmp_path,
        [
            message(7, began),
            message(8, b"no json"),
            message(9, began, day=1),
            message(11, b'{"type":"Later","id":"1","at":"x"}'),
            message(12, began, day=1),
            message(13, encode(JobCancelled(job_id="j", reason="r"))),
        ],
    )
    known, aside = "set=known/day=2026-01-31/event=", "set=aside/day=2026-01-31/event="
    late = found["set=known/day=2026-02-01/event=JobStarted"]
    assert (late["rows"], late["first"], late["last"]) == (2, 9, 12)
    assert found[f"{aside}malformed"]["malformed"] == found[f"{aside}unknown"]["unknown"] == 1
    assert set(found) == {
        f"{known}JobStarted",
        f"{known}JobCancelled",
        f"{aside}malformed",
        f"{aside}unknown",
        "set=known/day=2026-02-01/event=JobStarted",
    }
    table = pq.read_table(tmp_path / late["path"], partitioning=None)
    assert table["stream_sequence"].to_pylist() == [9, 12]
    assert table["pickup_seconds"].to_pylist() == [0.5, 0.5]
    assert not {"set", "day", "event"} & set(table.column_names)  # folders say it
    assert "reason" not in table.column_names  # which only the other event has
    other = pq.read_table(tmp_path / found[f"{known}JobCancelled"]["path"], partitioning=None)
    assert other["reason"].to_pylist() == ["r"]
    assert "pickup_seconds" not in other.column_names
    kept = pq.read_table(tmp_path / found[f"{aside}unknown"]["path"], partitioning=None)
    assert kept.column_names == ["stream_sequence", "stored_at", "subject", "type", "body", "raw"]
    assert all((tmp_path / row["path"]).stat().st_size == row["bytes"] for row in found.values())


def test_nothing_to_write_is_no_file(tmp_path: Path) -> None:
    assert written(tmp_path, []) == {}
    assert not list(tmp_path.iterdir())
