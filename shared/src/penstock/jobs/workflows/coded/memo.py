"""What a workflow has recorded, folded from its events. Pure.

Advances and inline steps are numbered, and each number counts once: what an attempt records that
did not know all that was recorded before it is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import msgspec

from penstock.events.job_event import JobError, JobEvent
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
    MAX_READ_IDS,
    MAX_REFUSED_SIGNALS,
    TIMED_OUT,
    MemoEntry,
    ScheduledStep,
    WaitGroup,
    WorkflowMemo,
)
from penstock.jobs.workflows.coded import consumed_signals

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
    read_to = max(memo.read_to, event.read_to)
    entries = (*memo.entries, entry)
    return msgspec.structs.replace(
        memo,
        entries=_with_last_refusals(entries, read_to) if event.refused else entries,
        wait=event.wait,
        status=event.status,
        sealed_status=event.sealed_status,
        advances=event.number,
        read_to=read_to,
        read_ids=(*memo.read_ids, *event.read_ids)[-MAX_READ_IDS:],
        ends_by=event.ends_by or memo.ends_by,
        **_by_code(memo, event),
    )


def _with_last_refusals(entries: tuple[MemoEntry, ...], read_to: int) -> tuple[MemoEntry, ...]:
    """The same without signals that were passed over long ago: any number of them may be sent.

    Those stay that are needed to know that they were, behind ``read_to``.
    """
    if sum(len(entry.refused) for entry in entries) <= MAX_REFUSED_SIGNALS:
        return entries
    last = {one.sequence for one in consumed_signals.refused_in(entries)[-MAX_REFUSED_SIGNALS:]}
    return tuple(
        msgspec.structs.replace(
            entry,
            refused=tuple(
                one if one.sequence in last else msgspec.structs.replace(one, reason="")
                for one in entry.refused
                if one.sequence in last or one.sequence > read_to
            ),
        )
        if entry.refused
        else entry
        for entry in entries
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
        read_to=max(memo.read_to, event.read_to),
        read=event.read,
        read_ids=(*memo.read_ids, *event.read_ids)[-MAX_READ_IDS:],
        cancelling=memo.cancelling,
        cancel_by=memo.cancel_by,
        ends_by=memo.ends_by,
        timed_out=memo.timed_out,
    )


def cancelling(memo: WorkflowMemo | None, event: WorkflowCancelling) -> WorkflowMemo:
    """The memo of one that is being cancelled."""
    reason = event.reason or "cancelled"
    return msgspec.structs.replace(
        memo or EMPTY, cancelling=reason, cancel_by=event.until, timed_out=event.timed_out
    )


def cancellation(memo: WorkflowMemo) -> JobError | None:
    """Why its code is to be given ``Cancelled``; None where it is not, or was given it."""
    if not memo.cancelling:
        return None
    kind = TIMED_OUT if memo.timed_out else "cancelled"
    return JobError(kind=kind, message=memo.cancelling)


def cancel_reason(memo: WorkflowMemo) -> str:
    """Why it is being cancelled, whether or not its code knows; empty where it is not."""
    ends = (end for entry in memo.entries for end in entry.consumed if end.key == CANCEL_KEY)
    noted = next((end.error.message for end in ends if end.error), "")
    return memo.cancelling or noted


def revived(memo: WorkflowMemo | None, changed: bool) -> WorkflowMemo | None:
    """The memo of one that lives again: it is not being cancelled, unless its code knows it is.

    The time that the whole may take is counted anew.

    Args:
        changed: it has other arguments now, and so may its steps; what they returned counts.
    """
    if memo is None:
        return memo
    if memo.cancel_by is not None or memo.ends_by is not None:
        memo = msgspec.structs.replace(
            memo, cancelling="", cancel_by=None, ends_by=None, timed_out=False
        )
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
    """What was scheduled, and is neither consumed nor given up for good, by key.

    Of a workflow that is cancelled, workflows below it are not: their ends are waited for.
    """
    steps = scheduled_steps(memo)
    given_up = {n for entry in memo.entries for n in entry.cancelled}
    clean_up = _given_up_as_cancelled(memo)
    consumed = {resolution.key for entry in memo.entries for resolution in entry.consumed}
    return {
        key: step
        for key, step in steps.items()
        if key not in consumed
        and (
            step.n not in given_up
            or step.is_compensated
            or (step.kind == "workflow" and step.n in clean_up)
        )
    }


def _given_up_as_cancelled(memo: WorkflowMemo) -> set[int]:
    """Numbers of the steps that were given up since its code was given ``Cancelled``."""
    numbers: set[int] = set()
    is_cancelled = False
    for entry in memo.entries:
        is_cancelled = is_cancelled or any(end.key == CANCEL_KEY for end in entry.consumed)
        if is_cancelled:
            numbers.update(entry.cancelled)
    return numbers


def given_up_steps(memo: WorkflowMemo) -> list[ScheduledStep]:
    """Jobs and batches that it does not wait for any more; these are to be cancelled."""
    given_up = {n for entry in memo.entries for n in entry.cancelled}
    return [
        step
        for step in scheduled_steps(memo).values()
        if step.n in given_up and (step.is_job or step.kind == "batch")
    ]


def knows_of_cancel(memo: WorkflowMemo) -> bool:
    """Whether its code was given ``Cancelled``."""
    return any(end.key == CANCEL_KEY for entry in memo.entries for end in entry.consumed)


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
