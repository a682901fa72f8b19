"""Events over the wire: what comes back, what is passed on, what is refused."""

from __future__ import annotations

import msgspec
import pytest

from penstock.events.envelope import MalformedEvent, UnknownEvent, encode, whole_micros
from penstock.events.job import JOB_EVENTS, JobCancelled, JobCompleted, JobStarted


def test_an_event_comes_back_as_it_was() -> None:
    event = JobStarted(job_id="j", queue="q", attempt=1, host="h", worker="w")
    assert JOB_EVENTS.decode(encode(event)) == event


def test_an_event_that_names_its_own_story_is_read() -> None:
    """Earlier versions repeated the job's id, and wrote durations with all their digits."""
    raw = (
        b'{"type":"JobCompleted","id":"e","at":"2026-11-22T15:29:57.211973Z","source":"worker/vm.w",'
        b'"correlation_id":"j","job_id":"j","queue":"bench","attempt":1,'
        b'"run_seconds":0.000053049000143801095,"result":"AA==","cpu_seconds":0.000034975999999999985}'
    )
    completed = JOB_EVENTS.decode(raw)
    assert isinstance(completed, JobCompleted)
    assert (completed.correlation_id, completed.key) == ("j", "j")
    assert whole_micros(completed.run_seconds) == 0.000053


def test_an_event_of_a_later_version_is_passed_on_whole() -> None:
    raw = b'{"type":"JobTeleported","job_id":"j","where":"mars"}'
    found = JOB_EVENTS.decode(raw)
    assert found == UnknownEvent(type="JobTeleported", raw=raw)
    assert encode(found) == raw


def test_a_field_of_a_later_version_is_no_error() -> None:
    raw = encode(JobCancelled(job_id="j", reason="r"))[:-1] + b',"mood":"calm"}'
    found = JOB_EVENTS.decode(raw)
    assert isinstance(found, JobCancelled)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x00\xff",
        b"[]",
        b'{"job_id":"j"}',
        b'{"type":7}',
        b'{"type":"JobStarted"}',
        b'{"type":"JobCancelled","job_id":"j","reason":1}',
        b'{"type":"\xff"}',
        b"[" * 100_000,
        msgspec.json.encode({"type": "JobStarted", "attempt": "one"}),
    ],
)
def test_what_is_no_event_says_so(raw: bytes) -> None:
    with pytest.raises(MalformedEvent):
        JOB_EVENTS.decode(raw)
