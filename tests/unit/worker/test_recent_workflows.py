"""Workflows as a worker left them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.events.workflow_memo import (
    InlineResult,
    MemoEntry,
    WorkflowMemo,
)
from penstock.worker.workflows.recent_workflows import RecentWorkflows


def recorded(entries: int) -> WorkflowMemo:
    inline = InlineResult("page", "page", bytes(1_000_000))
    return WorkflowMemo(entries=(MemoEntry(now=datetime.now(UTC), inline=inline),) * entries)


def test_half_of_what_a_workflow_may_record_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recent = RecentWorkflows()
    for entries in range(1, 6):
        recent.keep("w", recorded(entries), entries)
    [warning] = caplog.messages
    assert warning == "workflow w has recorded about 3.0 MB, at most 8.0 MB are allowed"
