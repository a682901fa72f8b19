"""The spans of a batch or graph: its dispatch, which all its jobs follow, and its whole life."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Any

from penstock import telemetry
from penstock.telemetry import names


def dispatching(noun: str, workflow_id: str, title: str) -> AbstractContextManager[Any]:
    """Around the dispatch of a batch or graph: what is dispatched inside belongs to its trace.

    Args:
        noun: ``batch`` or ``graph``.
        workflow_id: its id.
        title: for people.
    """
    if not telemetry.enabled():
        return nullcontext()
    return telemetry.span(
        names.workflow(noun),
        kind=telemetry.SpanKind.PRODUCER,
        attributes=_attributes(workflow_id, title),
    )


def record_end(
    noun: str,
    workflow_id: str,
    title: str,
    *,
    state: str,
    started_at: datetime,
    trace: Mapping[str, str],
) -> None:
    """The span of its whole life, once it has ended.

    Args:
        noun: ``batch`` or ``graph``.
        workflow_id: its id.
        title: for people.
        state: how it ended.
        started_at: when it was dispatched.
        trace: headers of its dispatch; without any nothing is recorded.
    """
    if not telemetry.enabled() or not trace:
        return
    span = telemetry.start(
        names.workflow_end(noun),
        parent=trace,
        started_at=started_at.timestamp(),
        attributes=_attributes(workflow_id, title) | {names.WORKFLOW_STATE: state},
    )
    if state == "failed":
        span.set_status(telemetry.ERROR)
    span.end()


def _attributes(workflow_id: str, title: str) -> dict[str, str]:
    return {names.WORKFLOW: workflow_id, names.WORKFLOW_TITLE: title[:200]}
