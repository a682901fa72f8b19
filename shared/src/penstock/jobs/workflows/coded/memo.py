"""What a workflow has recorded, folded from its events. Pure.

Advances and inline steps are numbered, and each number counts once: what an attempt records that
did not know all that was recorded before it is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import msgspec

from penstock.events.job_event import JobEvent
from penstock.events.workflow import (
    MemoCarried,
    StepRecorded,
    StepsScheduled,
    WorkflowAdvanced,
    WorkflowBlocked,
    WorkflowCancelling,
    WorkflowContinued,
    WorkflowFixed,
)
from penstock.events.workflow_memo import (
    CANCEL_KEY,
    MemoEntry,
    RefusedSignal,
    ScheduledStep,
    WaitGroup,
    WorkflowMemo,
)

EMPTY = WorkflowMemo()
_PART_BYTES = 250_000
"""Of entries in one event: beside them, a job's call has half a megabyte at most."""


def changes(memo: WorkflowMemo | None, event: JobEvent) -> dict[str, Any]:
    """Fields of a workflow's record that one of its own events changes; none for other events.

    Its tries, and the losses of its workers, are counted anew for each advance.
    """
    match event:
        case StepRecorded() | StepsScheduled():
            return {"workflow": recorded(memo, event)}
        case WorkflowAdvanced():
            after = advanced(memo, event)
        case WorkflowContinued():
            after = continued(memo, event)
        case WorkflowBlocked():
            after = blocked(memo, event)
        case WorkflowFixed():
            return {
                "workflow": fixed(memo or EMPTY, event),
                "wakes_at": None,
                "available_at": event.at,
            }
        case _:
            return {}
    due_at = None if isinstance(event, WorkflowContinued) else event.due_at
    return {
        "workflow": after,
        "wakes_at": due_at,
        "available_at": due_at or event.at,
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
        refused=event.refused,
    )
    return msgspec.structs.replace(
        memo,
        entries=(*memo.entries, entry),
        wait=event.wait,
        status=event.status,
        sealed_status=event.sealed_status,
        advances=event.number,
        **_by_code(memo, event),
    )


def recorded(memo: WorkflowMemo | None, event: StepRecorded | StepsScheduled) -> WorkflowMemo:
    """The memo after an inline step, or a part of what it waits for."""
    memo = memo or EMPTY
    if event.number != memo.inline_steps + 1:
        return memo
    if isinstance(event, StepRecorded):
        entry = MemoEntry(now=event.now, consumed=event.consumed, inline=event.inline)
    else:
        entry = MemoEntry(
            now=event.now,
            consumed=event.consumed,
            scheduled=event.scheduled,
            cancelled=event.cancelled,
            is_part=True,
        )
    return msgspec.structs.replace(
        memo,
        entries=(*memo.entries, entry),
        inline_steps=event.number,
        **_by_code(memo, event),
    )


def _by_code(
    memo: WorkflowMemo, event: WorkflowAdvanced | StepRecorded | StepsScheduled
) -> dict[str, Any]:
    """What changes as soon as code of some version has gone on."""
    is_noted = any(end.key == CANCEL_KEY for end in event.consumed)
    return {
        "cancelling": "" if is_noted else memo.cancelling,
        "blocked": "",
        "blocked_since": None,
        "version": event.version or memo.version,
        "patches": (*memo.patches, *event.patches),
    }


def continued(memo: WorkflowMemo | None, event: WorkflowContinued) -> WorkflowMemo:
    """The memo of a further generation: nothing is recorded, and no number is used again."""
    memo = memo or EMPTY
    numbers = [step.n for entry in memo.entries for step in entry.scheduled]
    first_number = max([memo.next_number, memo.first_number, *(n + 1 for n in numbers)])
    return WorkflowMemo(
        version=event.version or memo.version,
        next_number=first_number,
        fixes=memo.fixes + 1,
        generation=event.generation,
        first_number=first_number,
        read_to=event.read_to,
        read=event.read,
        cancelling=memo.cancelling,
        cancel_by=memo.cancel_by,
    )


def cancelling(memo: WorkflowMemo | None, event: WorkflowCancelling) -> WorkflowMemo:
    """The memo of one that is being cancelled."""
    reason = event.reason or "cancelled"
    return msgspec.structs.replace(memo or EMPTY, cancelling=reason, cancel_by=event.until)


def revived(memo: WorkflowMemo | None, changed: bool) -> WorkflowMemo | None:
    """The memo of one that lives again: it is not being cancelled, unless its code knows it is.

    Args:
        changed: it has other arguments now, and so may its steps; what they returned counts.
    """
    if memo is None:
        return memo
    if memo.cancel_by is not None:
        memo = msgspec.structs.replace(memo, cancelling="", cancel_by=None)
    if not changed:
        return memo
    return msgspec.structs.replace(memo, accepted=len(memo.entries), fixes=memo.fixes + 1)


def blocked(memo: WorkflowMemo | None, event: WorkflowBlocked) -> WorkflowMemo:
    """The same memo, with which no code goes on."""
    memo = memo or EMPTY
    since = memo.blocked_since or event.since or event.at
    return msgspec.structs.replace(memo, blocked=event.reason, blocked_since=since)


def fixed(memo: WorkflowMemo, event: WorkflowFixed) -> WorkflowMemo:
    """The memo as an operator wants it to be gone on from."""
    keys = frozenset(event.forgotten)
    numbers = [step.n for entry in memo.entries for step in entry.scheduled]
    is_amended = bool(keys) or event.accepts
    return msgspec.structs.replace(
        memo,
        entries=tuple(_without(entry, keys) for entry in memo.entries),
        blocked="",
        blocked_since=None,
        version=event.version or memo.version,
        next_number=max([memo.next_number, *(n + 1 for n in numbers)]),
        amended=len(memo.entries) if is_amended else memo.amended,
        accepted=len(memo.entries) if event.accepts else memo.accepted,
        fixes=memo.fixes + 1,
    )


def _without(entry: MemoEntry, keys: frozenset[str]) -> MemoEntry:
    dropped = {step.n for step in entry.scheduled if step.key in keys}
    return msgspec.structs.replace(
        entry,
        consumed=tuple(one for one in entry.consumed if one.key not in keys),
        scheduled=tuple(step for step in entry.scheduled if step.n not in dropped),
        inline=None if entry.inline and entry.inline.key in keys else entry.inline,
    )


def recorded_keys(memo: WorkflowMemo) -> set[str]:
    """Keys of all that was recorded."""
    return {
        key
        for entry in memo.entries
        for key in (
            *(step.key for step in entry.scheduled),
            *(one.key for one in entry.consumed),
            *((entry.inline.key,) if entry.inline else ()),
        )
    }


def parts(
    memo: WorkflowMemo | None,
) -> tuple[WorkflowMemo | None, list[tuple[int, tuple[MemoEntry, ...]]]]:
    """A memo as it fits events: what stands in the first, and entries with their offsets.

    No entry is larger than the event that it was recorded by.
    """
    if memo is None:
        return None, []
    cuts, size = [0], 0
    for place, entry in enumerate(memo.entries):
        length = len(msgspec.json.encode(entry))
        if size and size + length > _PART_BYTES:
            cuts.append(place)
            size = 0
        size += length
    if len(cuts) == 1 and size <= _PART_BYTES:
        return memo, []
    cuts.append(len(memo.entries))
    head = msgspec.structs.replace(memo, entries=(), following=len(memo.entries))
    return head, [(begin, memo.entries[begin:end]) for begin, end in pairwise(cuts)]


def joined(memo: WorkflowMemo | None, event: MemoCarried) -> WorkflowMemo | None:
    """The memo with one more part, if that is the next one."""
    if memo is None or not memo.following or event.offset != len(memo.entries):
        return memo
    entries = (*memo.entries, *event.entries)
    following = max(0, memo.following - len(event.entries))
    return msgspec.structs.replace(memo, entries=entries, following=following)


def scheduled_steps(memo: WorkflowMemo) -> dict[str, ScheduledStep]:
    """All that was ever scheduled, by key."""
    return {step.key: step for entry in memo.entries for step in entry.scheduled}


def open_steps(memo: WorkflowMemo) -> dict[str, ScheduledStep]:
    """What was scheduled, and is neither consumed nor given up for good, by key."""
    steps = scheduled_steps(memo)
    given_up = {n for entry in memo.entries for n in entry.cancelled}
    consumed = {resolution.key for entry in memo.entries for resolution in entry.consumed}
    return {
        key: step
        for key, step in steps.items()
        if key not in consumed and (step.n not in given_up or step.is_compensated)
    }


def given_up_steps(memo: WorkflowMemo) -> list[ScheduledStep]:
    """Jobs and batches that it does not wait for any more; these are to be cancelled."""
    given_up = {n for entry in memo.entries for n in entry.cancelled}
    return [
        step
        for step in scheduled_steps(memo).values()
        if step.n in given_up and (step.is_job or step.kind == "batch")
    ]


class ConsumedSignals:
    """Sequences of the signals that a workflow took note of, in all of its generations."""

    def __init__(self, read_to: int, later: Iterable[int]) -> None:
        self.read_to, self.later = read_to, frozenset(later)

    def __contains__(self, sequence: object) -> bool:
        return isinstance(sequence, int) and (sequence <= self.read_to or sequence in self.later)


def consumed_signals(memo: WorkflowMemo) -> ConsumedSignals:
    """Sequences of the signals that it took note of, or passed over."""
    consumed = {
        resolution.sequence
        for entry in memo.entries
        for resolution in entry.consumed
        if resolution.sequence
    }
    refused = (signal.sequence for signal in refused_signals(memo))
    return ConsumedSignals(memo.read_to, consumed.union(memo.read, refused))


def refused_signals(memo: WorkflowMemo) -> list[RefusedSignal]:
    """Signals whose values were of another type than what was waited for, oldest first."""
    return [signal for entry in memo.entries for signal in entry.refused]


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
