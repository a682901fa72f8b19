"""Bulk actions as their events add up. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from penstock.events.bulk import (
    BulkAborted,
    BulkEnded,
    BulkEvent,
    BulkPaused,
    BulkProgressed,
    BulkResumed,
    BulkStarted,
    Refused,
)

Position = tuple[int, str]
"""Time in microseconds, and id: the order in which a set is gone through."""
MOST_EXAMPLES, MOST_REASONS = 50, 20
OTHER_REASONS = "other reasons"


class BulkState(StrEnum):
    """Where an action is."""

    RUNNING = "running"
    PAUSED = "paused"
    ABORTED = "aborted"
    DONE = "done"

    @property
    def ended(self) -> bool:
        """Whether nothing further is done."""
        return self in (BulkState.ABORTED, BulkState.DONE)


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far an action is.

    Attributes:
        after: what was reached; None before the first.
        counted_to: event of the log up to which what was done is counted.
        done: that were acted on.
        refused: that were not.
        reasons: how many were not, by why.
        examples: some of those.
    """

    after: Position | None = None
    counted_to: int = 0
    done: int = 0
    refused: int = 0
    reasons: Mapping[str, int] = {}
    examples: tuple[Refused, ...] = ()

    def plus(self, done: int, refused: tuple[Refused, ...], after: Position) -> Progress:
        """The progress after a further part."""
        reasons = dict(self.reasons)
        for one in refused:
            is_known = one.text in reasons or len(reasons) < MOST_REASONS
            text = one.text if is_known else OTHER_REASONS
            reasons[text] = reasons.get(text, 0) + 1
        return msgspec.structs.replace(
            self,
            after=after,
            done=self.done + done,
            refused=self.refused + len(refused),
            reasons=reasons,
            examples=(*self.examples, *refused)[:MOST_EXAMPLES],
        )


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One bulk action.

    Attributes:
        start: what was started, by whom.
        sequence: of its last event: what the next append expects.
        changed_at: when it was stored.
        per_second: the speed limit now.
        ended_by: who aborted it.
    """

    start: BulkStarted
    sequence: int
    changed_at: datetime
    per_second: int
    state: BulkState = BulkState.RUNNING
    progress: Progress = Progress()
    ended_by: str = ""

    @property
    def id(self) -> str:
        """Of the action."""
        return self.start.bulk_id

    @property
    def source(self) -> str:
        """The origin that events name which this action causes: ``console/ada/ID``."""
        return f"console/{self.start.by[:30]}/{self.id}"


def advance(action: Action | None, event: BulkEvent, sequence: int) -> Action | None:
    """The action after an event; one that may not follow moves the sequence alone."""
    if isinstance(event, BulkStarted):
        if action is not None:
            return msgspec.structs.replace(action, sequence=sequence)
        return Action(
            start=event, sequence=sequence, changed_at=event.at, per_second=event.per_second
        )
    if action is None:
        return None
    moved = msgspec.structs.replace(action, sequence=sequence)
    if action.state.ended and not _is_last_progress(action, event):
        return moved
    return _changed(msgspec.structs.replace(moved, changed_at=event.at), event)


def _is_last_progress(action: Action, event: BulkEvent) -> bool:
    """What was under way when the action was aborted is counted, too."""
    return action.state is BulkState.ABORTED and isinstance(event, BulkProgressed)


def _changed(action: Action, event: BulkEvent) -> Action:
    replace = msgspec.structs.replace
    match event:
        case BulkProgressed():
            progress = Progress(
                after=event.after,
                counted_to=event.counted_to,
                done=event.done,
                refused=event.refused,
                reasons=event.reasons,
                examples=event.examples,
            )
            return replace(action, progress=progress)
        case BulkPaused():
            return replace(action, state=BulkState.PAUSED)
        case BulkResumed():
            speed = event.per_second or action.per_second
            return replace(action, state=BulkState.RUNNING, per_second=speed)
        case BulkAborted():
            return replace(action, state=BulkState.ABORTED, ended_by=event.by)
        case BulkEnded():
            return replace(action, state=BulkState.DONE)
    return action
