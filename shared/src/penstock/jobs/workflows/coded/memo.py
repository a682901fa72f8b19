"""What a workflow has recorded, folded from its events. Pure.

Advances and inline steps are numbered, and each number counts once: what an attempt records that
did not know all that was recorded before it is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from penstock.events.job_event import JobEvent
from penstock.events.workflow import (
    MemoEntry,
    ScheduledStep,
    StepRecorded,
    WaitGroup,
    WorkflowAdvanced,
    WorkflowBlocked,
    WorkflowMemo,
)

EMPTY = WorkflowMemo()


def changes(memo: WorkflowMemo | None, event: JobEvent) -> dict[str, Any]:
    """Fields of a workflow's record that one of its own events changes; none for other events.

    Its tries, and the losses of its workers, are counted anew for each advance.
    """
    match event:
        case StepRecorded():
            return {"workflow": recorded(memo, event)}
        case WorkflowAdvanced():
            after = advanced(memo, event)
        case WorkflowBlocked():
            after = blocked(memo, event.reason)
        case _:
            return {}
    return {
        "workflow": after,
        "wakes_at": event.due_at,
        "available_at": event.due_at or event.at,
        "next_attempt": 1,
        "lost_workers": 0,
        "lost_together": 0,
        "lost_beside": 0,
        "error": None,
    }


def advanced(memo: WorkflowMemo | None, event: WorkflowAdvanced) -> WorkflowMemo:
    """The memo after an advance."""
    memo = memo or EMPTY
    if event.number != memo.advances + 1:
        return memo
    entry = MemoEntry(
        now=event.now,
        consumed=event.consumed,
        scheduled=event.scheduled,
        cancelled=event.cancelled,
    )
    return WorkflowMemo(
        entries=(*memo.entries, entry),
        wait=event.wait,
        status=event.status,
        advances=event.number,
        inline_steps=memo.inline_steps,
    )


def recorded(memo: WorkflowMemo | None, event: StepRecorded) -> WorkflowMemo:
    """The memo after an inline step, or a part of a schedule."""
    memo = memo or EMPTY
    if event.number != memo.inline_steps + 1:
        return memo
    entry = MemoEntry(
        now=event.now,
        consumed=event.consumed,
        scheduled=event.scheduled,
        cancelled=event.cancelled,
        inline=event.inline,
        is_part=event.inline is None,
    )
    return msgspec.structs.replace(memo, entries=(*memo.entries, entry), inline_steps=event.number)


def blocked(memo: WorkflowMemo | None, reason: str) -> WorkflowMemo:
    """The same memo, which the code that ran does not fit."""
    return msgspec.structs.replace(memo or EMPTY, blocked=reason)


def scheduled_steps(memo: WorkflowMemo) -> dict[str, ScheduledStep]:
    """All that was ever scheduled, by key."""
    return {step.key: step for entry in memo.entries for step in entry.scheduled}


def open_steps(memo: WorkflowMemo) -> dict[str, ScheduledStep]:
    """What was scheduled, and is neither consumed nor given up, by key."""
    steps = scheduled_steps(memo)
    given_up = {n for entry in memo.entries for n in entry.cancelled}
    consumed = {resolution.key for entry in memo.entries for resolution in entry.consumed}
    return {
        key: step for key, step in steps.items() if key not in consumed and step.n not in given_up
    }


def given_up_steps(memo: WorkflowMemo) -> list[ScheduledStep]:
    """Steps with jobs that it does not wait for any more; these are to be cancelled."""
    given_up = {n for entry in memo.entries for n in entry.cancelled}
    return [
        step for step in scheduled_steps(memo).values() if step.n in given_up and step.kind == "job"
    ]


def consumed_signals(memo: WorkflowMemo) -> set[int]:
    """Sequences of the signals that it took note of."""
    return {
        resolution.sequence
        for entry in memo.entries
        for resolution in entry.consumed
        if resolution.sequence
    }


def goes_on(wait: Iterable[WaitGroup], ended: Mapping[int, bool]) -> bool:
    """Whether one of the groups holds.

    Args:
        wait: the groups.
        ended: number of each step that has ended, and whether it completed.
    """
    return any(_holds(group, ended) for group in wait)


def _holds(group: WaitGroup, ended: Mapping[int, bool]) -> bool:
    if group.or_any_failed and any(not ended.get(n, True) for n in group.steps):
        return True
    return all(n in ended for n in group.steps)
