"""Messages as rows: typed where they are events, kept aside with their bytes where they are not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.events.catalogue import LOGGED
from penstock.events.envelope import MalformedEvent, UnknownEvent, encode
from penstock.events.job import JobCompleted, JobError, JobFailed, SparkCost
from penstock.pipeline.broker.pulling import Message
from penstock.pipeline.events import decoder, option

DECODER = decoder(option(LOGGED))
AT = '"id":"1","at":"2026-01-31T08:00:00Z"'


def rows(*bodies: bytes) -> list[dict[str, Any]]:
    messages = [
        Message(number + 1, 1_769_846_400_000_000_000, "s", body, None)
        for number, body in enumerate(bodies)
    ]
    found = [row for batch in DECODER.batches(messages) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: int(row["stream_sequence"]))


def test_an_event_has_its_fields_their_defaults_and_its_text() -> None:
    cost = SparkCost(cpu_seconds=2.5)
    event = JobCompleted(job_id="j", queue="q", attempt=2, run_seconds=1, spark_cost=cost)
    (row,) = rows(encode(event))
    assert (row["set"], row["event"], row["type"], row["day"]) == (
        "known",
        "JobCompleted",
        "JobCompleted",
        "2026-01-31",
    )
    assert (row["at"], row["attempt"], row["run_seconds"]) == (event.at, 2, 1.0)
    assert (row["cpu_seconds"], row["forgiven"]) == (0.0, "")  # left out, so their defaults
    assert (row["spark_cost"], row["body"]) == ('{"cpu_seconds":2.5}', encode(event).decode())


def test_a_later_version_may_say_more() -> None:
    text = f'{{"type":"JobReleased",{AT},"job_id":"j","reason":"r","mood":[1]}}'
    (row,) = rows(text.encode())
    assert (row["reason"], row["body"]) == ("r", text)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"no json", "malformed"),
        (b"", "malformed"),
        (b"\xff\xfe", "malformed"),
        (b"[1]", "malformed"),
        (b'{"id":"1"}', "malformed"),
        (b"[" * 100_000, "malformed"),
        (b'{"type":"JobReleased","at":"2026-01-31T08:00:00Z","job_id":"j"}', "malformed"),
        (b'{"type":"JobReleased","id":"1","at":"yesterday","job_id":"j"}', "malformed"),
        (b'{"type":"JobReleased","id":"1","at":"2026-01-31T08:00:00","job_id":"j"}', "malformed"),
        (b'{"type":"JobReleased","id":"1","at":"0001-01-01T00:00:00+23:59"}', "malformed"),
        (b'{"type":"JobReleased","id":"1","at":"9999-12-31T23:59:59-23:59"}', "malformed"),
        (f'{{"type":"JobRetrying",{AT},"due_at":"9999-12-31T23:59:59Z"}}'.encode(), "malformed"),
        (f'{{"type":"JobStarted",{AT},"attempt":"two"}}'.encode(), "malformed"),
        (f'{{"type":"JobStarted",{AT},"attempt":1e400}}'.encode(), "malformed"),
        (f'{{"type":"JobStarted",{AT},"attempt":99999999999999999999}}'.encode(), "malformed"),
        (f'{{"type":"JobReleased",{AT},"reason":"\\ud800"}}'.encode(), "malformed"),
        (f'{{"type":"JobReleased",{AT},"later":"'.encode() + b'\xff"}', "malformed"),
        (b'{"type":"Later"}', "unknown"),
    ],
)
def test_what_is_no_event_is_kept_as_it_came(body: bytes, why: str) -> None:
    good = encode(JobFailed(job_id="j", queue="q", attempt=1, error=JobError(kind="k", message="")))
    first, row, last = rows(good, body, good)
    assert (row["set"], row["event"], row["raw"], row["body"]) == ("aside", why, body, None)
    assert first["event"] == last["event"] == "JobFailed"


@given(st.binary(max_size=60))
def test_no_bytes_stop_it(body: bytes) -> None:
    (row,) = rows(body)
    assert row["raw"] == body


def test_it_knows_what_the_platform_knows() -> None:
    """A reader of the lake and a reader of the log agree on what an event is."""
    for body in (b"no json", b'{"type":"Later"}', b'{"type":"JobReleased"}'):
        (row,) = rows(body)
        try:
            known = LOGGED.decode(body)
        except MalformedEvent:
            assert row["event"] == "malformed"
        else:
            assert isinstance(known, UnknownEvent)
            assert row["event"] == "unknown"
