"""What to do with a queue message whose compare-and-set lost. Pure.

The message says what was true when it was made; the job's own events say what is true now.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum, auto

from penstock.jobs.lifecycle import JobRecord, State


class Action(Enum):
    START = auto()
    """It waits after all: start it with its current sequence."""
    RECOVER = auto()
    """Its worker was lost: say so, then start it."""
    POISON = auto()
    """It lost too many workers: dead."""
    FOLLOW_UP = auto()
    """Make what must exist outside the log (schedule, dead letter), then drop the message."""
    DROP = auto()
    """Nothing left to do: acknowledge."""


def settle(record: JobRecord, message: int, now: datetime, max_lost_workers: int) -> Action:
    """The right answer to a message for a job in this state.

    Args:
        record: the job, folded from its events.
        message: sequence of the queue message in hand.
    """
    if record.state is State.DEAD:
        return Action.FOLLOW_UP
    if record.state.ended:
        return Action.DROP
    if record.state is State.RUNNING:
        if record.message != message:
            return (
                Action.DROP
            )  # a double; the message it runs from is still claimed, or comes again
        if record.lost_workers + 1 >= max_lost_workers:
            return Action.POISON
        return Action.RECOVER
    if record.state is not State.WAITING and record.available_at > now:
        return Action.FOLLOW_UP
    if record.state is State.RETRYING and record.message == message:
        # Whoever recorded the failure acknowledges this message, perhaps late, and that is not
        # fenced: an attempt that was started from it would lose it.
        return Action.FOLLOW_UP
    return Action.START
