"""Graphs with conditions are judged by what has ended, not by what has completed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.events.condition import Condition
from penstock.events.graph import (
    GraphCompleted,
    GraphElapsed,
    GraphStarted,
    GraphStep,
    GraphWaiting,
    Rule,
    Wait,
)
from penstock.events.job import JobCompleted, JobDead, JobDispatched, JobError
from penstock.verifying.workflows import check_graph

NOW = datetime(2026, 11, 23, tzinfo=UTC)
FIRST = GraphStep(name="a", payload=b"")
LAST = GraphStep(name="c", payload=b"", needs=(0,), rule=Rule.ALL_DONE)
SKIPPED = GraphStep(name="b", payload=b"", needs=(0,), when=Condition(exists=("context", "k")))


def dispatched(number: int, index: int) -> tuple[int, Any]:
    return number, JobDispatched(
        job_id=f"g_step_{index}", queue="q", function="f", payload=b"", at=NOW
    )


def died(number: int, index: int) -> tuple[int, Any]:
    error = JobError(kind="e", message="m")
    return number, JobDead(job_id=f"g_step_{index}", queue="q", attempt=1, error=error, at=NOW)


def completed(number: int, index: int) -> tuple[int, Any]:
    return number, JobCompleted(
        job_id=f"g_step_{index}", queue="q", attempt=1, run_seconds=1.0, at=NOW
    )


def judged(*steps: GraphStep, jobs: dict[int, list[tuple[int, Any]]]) -> list[str]:
    history = [
        (1, GraphStarted(graph_id="g", steps=steps, at=NOW)),
        (90, GraphCompleted(graph_id="g", at=NOW)),
    ]
    return [violation.text for violation in check_graph("g", history, jobs)]


def test_a_step_after_a_failed_one_breaks_no_rule_that_lets_it_run() -> None:
    jobs = {0: [dispatched(2, 0), died(3, 0)], 1: [dispatched(4, 1), completed(5, 1)]}
    assert judged(FIRST, LAST, jobs=jobs) == []


def test_a_step_without_a_job_was_skipped() -> None:
    jobs = {0: [dispatched(2, 0), completed(3, 0)]}
    assert judged(FIRST, SKIPPED, jobs=jobs) == []


@pytest.mark.parametrize("ends_at", [5, 95])
def test_a_step_that_begins_before_one_that_it_needs_has_ended(ends_at: int) -> None:
    jobs = {0: [dispatched(2, 0), died(ends_at, 0)], 1: [dispatched(4, 1), completed(6, 1)]}
    texts = judged(FIRST, LAST, jobs=jobs)
    assert texts[0] == "step 'c' was dispatched before 'a' had ended"
    assert ("it completed without 'a'" in texts) is (ends_at == 95)


def test_a_plain_graph_is_judged_by_what_completed() -> None:
    plain = GraphStep(name="c", payload=b"", needs=(0,))
    jobs = {0: [dispatched(2, 0), died(3, 0)], 1: [dispatched(4, 1), completed(5, 1)]}
    assert judged(FIRST, plain, jobs=jobs)[0] == "step 'c' was dispatched before 'a' had completed"


@pytest.mark.parametrize("elapsed_at", [4, 8])
def test_a_step_that_begins_while_one_that_it_needs_still_waits(elapsed_at: int) -> None:
    nap = GraphStep(name="nap", payload=b"", wait=Wait(seconds=60.0))
    history: list[tuple[int, Any]] = [
        (1, GraphStarted(graph_id="g", steps=(nap, LAST), at=NOW)),
        (2, GraphWaiting(graph_id="g", until={0: NOW}, at=NOW)),
        (elapsed_at, GraphElapsed(graph_id="g", steps=(0,), at=NOW)),
        (90, GraphCompleted(graph_id="g", at=NOW)),
    ]
    jobs = {1: [dispatched(6, 1), completed(7, 1)]}
    texts = [violation.text for violation in check_graph("g", history, jobs)]
    late = ["step 'c' was dispatched while 'nap' still waited"]
    assert texts == (late if elapsed_at > 6 else [])
