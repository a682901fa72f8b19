"""Workflows as this worker left them, so that their history need not be read again."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import NamedTuple

from penstock.events.workflow_memo import (
    MAX_MEMO_BYTES,
    MemoEntry,
    WorkflowMemo,
)

log = logging.getLogger("penstock.worker")

_MAX_WORKFLOWS = 10_000
_MAX_BYTES = 16_000_000
_LARGE_BYTES = MAX_MEMO_BYTES * 3 // 8
"""Half of what is allowed, as values are before they are stored in base64."""
_ITEM_BYTES = 300
"""Roughly those of an entry, a step or a result, without its value."""


class RecentWorkflow(NamedTuple):
    """What a workflow had recorded when it was suspended here.

    Attributes:
        sequence: of the event of its last advance.
        size: roughly, in bytes.
    """

    memo: WorkflowMemo
    sequence: int
    size: int


class RecentWorkflows:
    """The last ones that were suspended here, as many as a bound of memory allows.

    They may have gone on elsewhere since: a reader compares the sequence.
    """

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._workflows: OrderedDict[str, RecentWorkflow] = OrderedDict()
        self._max_bytes, self._bytes = max_bytes, 0

    def get(self, workflow_id: str) -> RecentWorkflow | None:
        return self._workflows.get(workflow_id)

    def keep(self, workflow_id: str, memo: WorkflowMemo, sequence: int) -> None:
        """Notes a workflow after the advance of that sequence."""
        size, counted = 0, 0
        if earlier := self._workflows.pop(workflow_id, None):
            self._bytes -= earlier.size
            size, counted = earlier.size, len(earlier.memo.entries)
        before = size
        size += sum(map(_size, memo.entries[counted:]))
        if before < _LARGE_BYTES <= size:
            log.warning(
                "workflow %s has recorded about %.1f MB, at most %.1f MB are allowed",
                workflow_id,
                size / 1e6,
                MAX_MEMO_BYTES / 1e6,
            )
        self._workflows[workflow_id] = RecentWorkflow(memo, sequence, size)
        self._bytes += size
        while self._bytes > self._max_bytes or len(self._workflows) > _MAX_WORKFLOWS:
            self._bytes -= self._workflows.popitem(last=False)[1].size


def _size(entry: MemoEntry) -> int:
    size = _ITEM_BYTES + (len(entry.inline.value) if entry.inline else 0)
    size += sum(_ITEM_BYTES + len(resolution.value) for resolution in entry.consumed)
    return size + sum(_ITEM_BYTES + len(step.payload) for step in entry.scheduled)
