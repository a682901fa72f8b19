"""Events over the wire: what comes back, what is passed on, what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.events.catalogue import ALL
from penstock.events.envelope import MalformedEvent, UnknownEvent, encode, whole_micros
from penstock.events.graph import GRAPH_EVENTS, Signal
from penstock.events.job import JOB_EVENTS, JobCancelled, JobCompleted, JobStarted
from penstock.events.recovering import RecoverAnswered, RecoverAsked
from penstock.events.snapshot import SNAPSHOTS
from penstock.events.worker import WorkerReport
from penstock.events.workflow_memo import (
    MemoEntry,
    ScheduledStep,
    WorkflowMemo,
)
from penstock.jobs.payloads.payload import Payload


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


def test_a_time_that_is_none_of_utc_is_refused() -> None:
    """``astimezone`` and ``timestamp`` raise ``OverflowError`` for these, in all readers."""
    for at in ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "1969-12-31T23:59:59Z"):
        for field in ("at", "due_at"):
            raw = f'{{"type":"JobRecovered","job_id":"j","reason":"r","{field}":"{at}"}}'
            with pytest.raises(MalformedEvent, match=f"{field} = {at[:4]}.*years 1970 to 9998"):
                JOB_EVENTS.decode(raw.encode())


@pytest.mark.parametrize("digits", [20, 31, 400, 5000])
def test_an_integer_beyond_64_bits_is_refused(digits: int) -> None:
    """Floats and MessagePack raise ``OverflowError`` for these."""
    raw = b'{"type":"JobProgressed","job_id":"j","done":-1%s}' % (b"0" * digits)
    with pytest.raises(MalformedEvent):
        JOB_EVENTS.decode(raw)


def test_all_that_comes_from_outside_has_bounds() -> None:
    """Also what is added to an event later."""
    for kind in (*ALL, WorkerReport, RecoverAsked, RecoverAnswered, Payload):
        _check_bounds(msgspec.inspect.type_info(kind), kind.__name__, may_hold_times=True)


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_times_inside_of_what_a_workflow_recorded_are_those_of_utc(at: str) -> None:
    steps = f'{{"n":0,"key":"sleep","kind":"timer","due_at":"{at}"}}'
    beginning = '{"type":"WorkflowAdvanced","job_id":"j","queue":"q","number":1'
    raw = f'{beginning},"now":"2026-11-20T12:00:00Z","scheduled":[{steps}]}}'
    with pytest.raises(MalformedEvent, match="due_at"):
        JOB_EVENTS.decode(raw.encode())
    memo = f'{{"entries":[{{"now":"{at}"}}]}}'
    with pytest.raises(msgspec.ValidationError, match="now"):
        msgspec.json.decode(memo, type=WorkflowMemo)


def _check_bounds(
    kind: Any, where: str, may_hold_times: bool = False, above: frozenset[type] = frozenset()
) -> None:
    if isinstance(kind, msgspec.inspect.IntType):
        assert kind.ge is not None or kind.gt is not None, where
        assert kind.le is not None or kind.lt is not None, where
    if isinstance(kind, msgspec.inspect.StructType) and kind.cls not in above:
        above |= {kind.cls}  # one that holds itself: a condition
        for field in kind.fields:
            is_time = _holds_time(field.type)
            is_kept = kind.cls in (*SNAPSHOTS,)  # in a checkpoint, by the decider itself
            is_kept |= kind.cls in (
                ScheduledStep,
                MemoEntry,
                WorkflowMemo,
                Signal,
            )  # which look themselves
            message = f"{where}.{field.name}: no codec looks at its years"
            assert may_hold_times or is_kept or not is_time, message
            _check_bounds(field.type, f"{where}.{field.name}", above=above)
    for inner in (*getattr(kind, "types", ()), *getattr(kind, "item_types", ())):
        _check_bounds(inner, where, above=above)
    for name in ("item_type", "key_type", "value_type"):
        if (inner := getattr(kind, name, None)) is not None:
            _check_bounds(inner, where, above=above)


def _holds_time(kind: Any) -> bool:
    kinds = (kind, *getattr(kind, "types", ()))
    return any(isinstance(inner, msgspec.inspect.DateTimeType) for inner in kinds)


@pytest.mark.parametrize("needs", ["[0]", "[1]", "[2]", "[-1]", "[0,0]", f"[{10**30}]"])
def test_a_graph_that_never_gets_ready_is_refused(needs: str) -> None:
    steps = f'{{"name":"a","payload":""}},{{"name":"b","payload":"","needs":{needs}}}'
    raw = f'{{"type":"GraphStarted","graph_id":"g","steps":[{steps}]}}'.encode()
    if needs == "[0]":
        GRAPH_EVENTS.decode(raw)
        return
    with pytest.raises(MalformedEvent):
        GRAPH_EVENTS.decode(raw)


def test_a_graph_has_no_more_steps_than_a_client_takes() -> None:
    steps = ",".join(['{"name":"a","payload":""}'] * 1001)
    with pytest.raises(MalformedEvent, match="found 1001 steps, expected 1 to 1000"):
        GRAPH_EVENTS.decode(f'{{"type":"GraphStarted","graph_id":"g","steps":[{steps}]}}'.encode())
