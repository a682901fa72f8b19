"""What ``print``, logs, rich and failed assertions show of a job: no arguments and no result."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from penstock.bus.protocol import Delivery, Outgoing, Stored
from penstock.events.batch import Callback
from penstock.events.graph import GraphStep
from penstock.events.job import JobCompleted, JobDispatched
from penstock.jobs import lifecycle
from penstock.jobs.job_type import encode
from penstock.jobs.job_view import JobView
from penstock.jobs.payloads import payload
from penstock.jobs.payloads.payload import Payload
from penstock.jobs.queues.queue_messages import DeadLetter
from penstock.jobs.running.checkpoints import Checkpoint

CARD = "4111-1111"
CALL = Payload(
    id="j",
    function="f",
    queue="q",
    arguments=msgspec.Raw(encode({"card": CARD})),
    dispatched_at=0,
    handed={"row": msgspec.Raw(encode({"card": CARD}))},
    masked=("card",),
)
BODY = payload.encode(CALL)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def view() -> JobView:
    dispatched = JobDispatched(job_id="j", queue="q", function="f", payload=BODY)
    record = lifecycle.evolve(None, dispatched, 1)
    record = msgspec.structs.replace(record, result=encode({"card": CARD}))
    return JobView(record=record, events=((1, dispatched),))


PRINTED: list[Any] = [
    CALL,
    view(),
    view().record,
    view().events,
    JobCompleted(job_id="j", queue="q", attempt=1, result=encode({"card": CARD}), run_seconds=1),
    DeadLetter(
        job_id="j", queue="q", function="f", payload=BODY, attempts=1, at=0,
        error=lifecycle.JobError(kind="k", message="m"),
    ),
    Checkpoint(token=1, data=msgspec.Raw(encode(CARD))),
    GraphStep(name="s", payload=BODY),
    Callback(payload=BODY),
    Outgoing("s", BODY),
    Stored("s", 1, NOW, BODY),
]  # fmt: skip


@pytest.mark.parametrize("value", PRINTED, ids=lambda value: type(value).__name__)
def test_no_argument_and_no_result_is_printed(value: Any) -> None:
    shown = repr(value) + str(value) + f"{value}"
    if isinstance(value, msgspec.Struct):
        shown += repr(value.__rich_repr__())
    assert CARD not in shown
    assert " bytes>" in shown or isinstance(value, JobView)


def test_a_job_is_printed_in_one_line() -> None:
    assert repr(view()) == (
        "JobView(id='j', function='f', queue='q', state='waiting', attempts=0, "
        "error=None, events=1)"
    )


def test_every_struct_with_bytes_prints_their_size() -> None:
    shown_plainly = [
        kind.__name__
        for kind in (Delivery, *_below(msgspec.Struct))
        if kind.__module__.startswith(("penstock.events", "penstock.jobs", "penstock.bus.protocol"))
        and any(field.type in (bytes, msgspec.Raw) for field in msgspec.structs.fields(kind))
        and kind.__repr__ is msgspec.Struct.__repr__
        and not kind.__name__.startswith("Arguments of ")  # made for a job's signature, not kept
    ]
    # What these hold is a hash, a closed box, and sketches of durations.
    assert set(shown_plainly) <= {"About", "Sealed", "QueueReport"}


def _below(kind: type) -> list[type]:
    return [each for child in kind.__subclasses__() for each in (child, *_below(child))]


def test_a_trace_id_is_shown_of_a_trace_parent_alone() -> None:
    trace_id = "ab" * 16
    for parent, shown in (
        (f"00-{trace_id}-{'cd' * 8}-01", trace_id),
        ("00-<script>-x-01", ""),
        (f"00-{'a' * 1000}-{'cd' * 8}-01", ""),
        ("", ""),
    ):
        assert msgspec.structs.replace(view(), traceparent=parent).trace_id == shown
