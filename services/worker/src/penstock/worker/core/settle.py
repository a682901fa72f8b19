"""What to do with a queue message whose compare-and-set lost. Pure.

The message says what was true when it was made; the job's own events say what is true now.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum, auto

from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.running import worker_loss


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


def settle(
    record: JobRecord,
    message: int,
    made_from: int,
    attempt: int,
    now: datetime,
    max_lost_workers: int,
) -> Action:
    """The right answer to a message for a job in this state.

    A message may be acknowledged late, by a worker that was frozen or cut off, and that is not
    fenced. So no message is started from that anybody may have acknowledged: neither one of an
    earlier attempt, nor a double of the one that the running attempt came from.

    Args:
        record: the job, folded from its events.
        message: sequence of the queue message in hand.
        made_from: sequence of the event that it was made from. attempt: the one it was made for.
    """
    if made_from < record.messages_from:
        return Action.DROP  # of a life or a queue that the job has left: it has another message
    if record.is_paused and record.state is not State.RUNNING:
        return Action.DROP  # resumed, it is given another
    match record.state:
        case State.DEAD:
            return Action.FOLLOW_UP
        case State.COMPLETED | State.CANCELLED:
            return Action.DROP
        case State.SCHEDULED:
            return Action.FOLLOW_UP if record.available_at > now else Action.START
        case State.RETRYING:
            own = attempt == record.next_attempt and (
                not record.put_off or made_from >= record.changed_by
            )
            due = record.available_at <= now
            return Action.START if own and due else Action.FOLLOW_UP
        case State.SUSPENDED:  # made for an earlier wait: what it announced was taken note of
            return Action.DROP if made_from < record.changed_by else Action.START
    if record.message not in (0, message):
        return Action.DROP  # its own message is still claimed, or comes again
    if record.state is State.WAITING:
        return Action.START
    is_last = worker_loss.is_last(record, max_lost_workers, record.slots)
    return Action.POISON if is_last else Action.RECOVER
