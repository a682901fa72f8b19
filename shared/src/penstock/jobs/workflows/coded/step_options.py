"""Checks what the author of a workflow sets for one of its steps. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from penstock.config.topology import PRIORITIES, Priority
from penstock.events.subjects import BadName, check_name
from penstock.jobs.errors import WorkflowError
from penstock.jobs.payloads import payload
from penstock.jobs.retry import Backoff
from penstock.jobs.workflows.coded.commands import StepOptions

MAX_LENGTH = timedelta(days=366)
"""Of a delay, a timer or a timeout."""
_MAX_TRIES = 1_000_000
_NONE = ("", "normal", 0, (), 0, 0, None)
_AS_DECLARED = StepOptions()


def checked(
    *,
    queue: str,
    priority: Priority,
    delay: float | timedelta,
    tags: Iterable[str],
    tries: int,
    timeout: float | timedelta,
    backoff: Backoff | None,
) -> StepOptions:
    """The options as ``ctx.run`` is given them. Raises WorkflowError."""
    if (queue, priority, delay, tags, tries, timeout, backoff) == _NONE:
        return _AS_DECLARED  # as of nearly all steps, each time that the code runs
    if priority not in PRIORITIES:
        raise WorkflowError(
            f"ctx.run(priority={priority!r}): expected one of {', '.join(PRIORITIES)}"
        )
    is_whole = isinstance(tries, int) and not isinstance(tries, bool)
    if not is_whole or not 0 <= tries <= _MAX_TRIES:
        raise WorkflowError(f"ctx.run(tries={tries!r}): expected a whole number from 1 on")
    if backoff is not None and not isinstance(backoff, Backoff):
        raise WorkflowError(
            f"ctx.run(backoff={backoff!r}): expected a Backoff, such as "
            "Backoff(first_seconds=0.2) or Backoff(delays_seconds=(1, 5, 30))"
        )
    try:
        own_queue = check_name("queue", queue) if queue else ""
    except BadName as error:
        raise WorkflowError(f"ctx.run(queue=...): {error}") from error
    own_tags = tuple(tags)
    if isinstance(tags, str) or not all(isinstance(tag, str) for tag in own_tags):
        raise WorkflowError(f"ctx.run(tags={tags!r}): expected a list of texts")
    seconds = span("ctx.run(timeout=...)", timeout).total_seconds()
    return StepOptions(
        queue=own_queue,
        priority=priority,
        delay=span("ctx.run(delay=...)", delay),
        tags=own_tags,
        tries=tries,
        timeout_seconds=seconds or payload.UNLIMITED,
        backoff=backoff,
    )


def span(what: str, length: float | timedelta) -> timedelta:
    """A length of time of up to a year. Raises WorkflowError.

    Args:
        what: is given it, for the error.
        length: seconds, if it is a number.
    """
    try:
        length_of_time = length if isinstance(length, timedelta) else timedelta(seconds=length)
    except (TypeError, ValueError, OverflowError) as error:
        raise WorkflowError(f"{what}: found {length!r}, expected seconds: {error}") from error
    if not timedelta() <= length_of_time <= MAX_LENGTH:
        raise WorkflowError(f"{what}: found {length_of_time}, expected a time of up to a year")
    return length_of_time
