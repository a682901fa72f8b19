"""Jobs that write what they did into a diary: which job, under which fencing token, when."""

from __future__ import annotations

import time

from tests.chaos.chaos_jobs import mark

from penstock.jobs import Context, job

WORK, HELD, PAUSED, LATER, TRAFFIC = "work", "held", "paused", "later", "traffic"
_STEP_SECONDS = 0.2
_LEAST_PAUSE_SECONDS = 0.5


class NotYet(Exception):
    """Attributes: until: when it may be tried again, by the machine's monotonic clock."""

    def __init__(self, until: float) -> None:
        super().__init__(f"not before {until:.0f}")
        self.until = until


def pause_until(_attempt: int, error: BaseException) -> float:
    """One long backoff."""
    until = error.until if isinstance(error, NotYet) else 0.0
    return max(until - time.monotonic(), _LEAST_PAUSE_SECONDS)


@job(queue=WORK)
def note(context: Context, diary: str) -> str:
    """Writes one line; its result names the job."""
    mark(context, diary)
    return context.job_id


@job(queue=HELD)
def hold(context: Context, diary: str, until: float) -> None:
    """Runs until a moment of the machine's clock, by whichever attempt."""
    mark(context, diary)
    while time.monotonic() < until:
        time.sleep(_STEP_SECONDS)
    mark(context, diary)


@job(queue=WORK, tries=5, backoff=pause_until)
def mend(context: Context, diary: str, until: float) -> None:
    """Fails before a moment, and is tried again after it."""
    mark(context, diary)
    if time.monotonic() < until:
        raise NotYet(until)


@job(queue=WORK)
def take(context: Context, diary: str, earlier: str) -> str:
    """A step that is given the result of an earlier one."""
    mark(context, diary)
    if not earlier:
        raise ValueError("the result of the earlier step is empty")
    return earlier


@job(queue=PAUSED)
def take_when_resumed(context: Context, diary: str, earlier: str) -> str:
    """The same, on a queue that is paused."""
    mark(context, diary)
    return earlier


@job(queue=TRAFFIC)
def swallow(data: str) -> int:
    """Traffic: what it is given is not looked at."""
    return len(data)
