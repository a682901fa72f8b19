"""What the orchestrator holds of a workflow that waits."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from penstock.events.envelope import encode
from penstock.events.job import JOB_EVENTS
from penstock.events.workflow import WorkflowAdvanced
from penstock.events.workflow_memo import (
    ScheduledStep,
    WaitGroup,
)
from penstock.orchestrator.core.suspended import SuspendedWorkflow

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
TIMER = ScheduledStep(n=0, key="sleep", kind="timer", due_at=NOW + timedelta(days=2))
SIGNAL = ScheduledStep(n=0, key="approved", kind="signal", digest="approved")
JOB = ScheduledStep(n=0, key="charge", digest="charge(0123456789ab)", payload=b"x" * 200)


def advanced(*steps: ScheduledStep) -> WorkflowAdvanced:
    """As it is read from the log: nothing of it is shared with another one's."""
    event = WorkflowAdvanced(
        job_id="w", queue="workflows", number=1, now=NOW, scheduled=steps,
        wait=(WaitGroup(tuple(step.n for step in steps)),), function="fulfil",
    )  # fmt: skip
    read = JOB_EVENTS.decode(encode(event))
    assert isinstance(read, WorkflowAdvanced)
    return read


@pytest.mark.parametrize(
    ("step", "most_bytes"),
    [(TIMER, 400), (SIGNAL, 700), (JOB, 900)],
    ids=["timer", "signal", "job"],
)
def test_one_that_waits_takes_little_memory(step: ScheduledStep, most_bytes: int) -> None:
    count, held = 2_000, []
    SuspendedWorkflow(1, 0, 0.0).advance(advanced(step), 2, 0.0)  # what all share
    tracemalloc.start()
    try:
        for sequence in range(1_000, 1_000 + count):
            workflow = SuspendedWorkflow(0, 0, 0.0)
            workflow.advance(advanced(step), sequence, float(sequence))
            workflow.observed([step.n])
            held.append(workflow)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / count < most_bytes


def test_what_one_has_is_not_anothers() -> None:
    first, second = SuspendedWorkflow(0, 0, 0.0), SuspendedWorkflow(0, 0, 0.0)
    first.advance(advanced(JOB, msgspec.structs.replace(SIGNAL, n=1)), 5, 0.0)
    first.see_end(0, completed=True)
    assert (first.jobs, first.ended, first.signals) == (
        {"charge": 0}, {0: True}, {"approved": (1, "approved")},
    )  # fmt: skip
    assert not (second.jobs or second.ended or second.signals or second.unseen or second.kinds)


def test_waits_that_nothing_has_any_more_are_not_kept() -> None:
    """Any key that may store events of jobs chooses numbers of steps."""
    tracemalloc.start()
    try:
        for number in range(20_000):
            workflow = SuspendedWorkflow(0, 0, 0.0)
            step = msgspec.structs.replace(TIMER, n=number)
            workflow.advance(advanced(step), number, 0.0)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 1_000_000
