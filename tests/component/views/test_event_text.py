"""Each event as a line, and the catalogue of all."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.events.catalogue import ALL, LOGGED, entry
from penstock.events.envelope import UnknownEvent
from penstock.events.job import JobError, JobFailed
from penstock.events.scaling import Reason, ScalingDecisionMade
from penstock.events.subjects import Subjects
from penstock.views import event_text


@pytest.mark.parametrize("kind", list(LOGGED), ids=lambda kind: kind.__name__)
def test_every_event_of_the_log_has_words(kind) -> None:
    assert kind in event_text._WORDS


def test_a_decision_tells_its_last_reason() -> None:
    made = ScalingDecisionMade(
        pool="reports",
        current=2,
        target=5,
        strategy="hybrid",
        sla_seconds=30,
        reasons=(
            Reason(step="strategy", rule="hybrid.drain", workers=9, text="9 wanted"),
            Reason(step="bounds", rule="max", workers=5, text="at most 5 allowed"),
        ),
    )
    assert event_text.line(made).endswith(
        "pool reports ScalingDecisionMade: 2 → 5 (at most 5 allowed)"
    )


def test_a_failure_tells_its_error() -> None:
    error = JobError(kind="builtins.ValueError", message="no luck")
    failed = JobFailed(job_id="j", queue="q", attempt=2, error=error, at=datetime.now(UTC))
    assert "attempt 2: builtins.ValueError: no luck" in event_text.line(failed)


def test_an_event_of_a_later_version_is_named() -> None:
    assert "JobPostponed" in event_text.line(UnknownEvent(type="JobPostponed", raw=b"{}"))


@pytest.mark.parametrize("kind", list(ALL), ids=lambda kind: kind.__name__)
def test_every_event_has_subject_stream_and_schema(kind) -> None:
    told = entry(kind, Subjects("mine"))
    assert told.subject.startswith("mine.")
    assert not kind.key_field or f"<{kind.key_field}>" in told.subject
    assert told.stream.startswith("mine_")
    assert kind.__name__ in told.schema["$defs"]
