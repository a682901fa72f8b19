"""The rules of one job's history. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from penstock.events.envelope import Event, UnknownEvent
from penstock.events.job import (
    JobCancelled,
    JobCarried,
    JobCommitted,
    JobCompleted,
    JobDead,
    JobDispatched,
    JobEvent,
    JobFailed,
    JobProgressed,
    JobRevived,
    JobStarted,
    JobTagged,
)
from penstock.events.workflow import MemoCarried
from penstock.jobs import lifecycle
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.shortened_history import without_tail
from penstock.verifying.rules import Entry, History, Rule, Violation

ENDS = (JobCompleted, JobDead, JobCancelled)
_BY_THE_ATTEMPT = (JobCompleted, JobFailed, JobProgressed, JobCommitted)
_BESIDE = (JobCarried, MemoCarried, JobTagged)
"""Nothing of a job's life: what stood before, and tags, which ended jobs may be given, too."""
_BEGINS = (JobDispatched, JobCarried, JobRevived)


def is_whole(history: History) -> bool:
    """Whether the log holds the job's first event."""
    return bool(history) and isinstance(history[0][1], JobDispatched)


def record_of(history: History) -> JobRecord | None:
    """The job as its events add up; None where its first events left the log and it has ended."""
    return lifecycle.fold(without_tail(history))


def check_job(job_id: str, history: History, *, trimmed: bool) -> Iterator[Violation]:
    """What breaks a rule, whether or not the job has ended.

    Args:
        job_id: of the job.
        history: its events.
        trimmed: earlier events of jobs may have left the log; else a job begins with its dispatch.
    """
    subject = f"job {job_id}"
    legal = without_tail(history) if trimmed else history
    unreadable = {number for number, event in history if isinstance(event, UnknownEvent)}
    for number, reason in lifecycle.ignored_events(legal):
        rule = Rule.READABLE if number in unreadable else Rule.LEGAL
        yield Violation(rule=rule, subject=subject, text=reason, sequence=number)
    numbers = [number for number, _ in history]
    if numbers != sorted(set(numbers)):
        yield Violation(rule=Rule.TOKEN, subject=subject, text=f"sequences {numbers} do not grow")
    happened = [entry for entry in history if not isinstance(entry[1], _BESIDE)]
    for life in _lives(happened):
        for rule, number, text in _faults_of_life(life):
            yield Violation(rule=rule, subject=subject, text=text, sequence=number)


def check_carried(job_id: str, history: History) -> Iterator[Violation]:
    """A job whose first events left the log has ended, or an event that holds all of it."""
    if any(isinstance(event, (*_BEGINS, *ENDS)) or _is_tagged_end(event) for _, event in history):
        return
    names = ", ".join(_name(event) for _, event in history[:5])
    yield Violation(
        rule=Rule.CARRIED,
        subject=f"job {job_id}",
        text=f"the log has only {names}: neither its dispatch nor its end, nor JobCarried",
        sequence=history[-1][0] if history else 0,
    )


def _is_tagged_end(event: Event | UnknownEvent) -> bool:
    return isinstance(event, JobTagged) and event.state in tuple(State) and State(event.state).ended


def check_ended(job_id: str, record: JobRecord | None) -> Iterator[Violation]:
    """An acknowledged job has ended; ``record`` is None where the log does not hold it."""
    if record is None or not record.state.ended:
        yield Violation(
            rule=Rule.ENDS,
            subject=f"job {job_id}",
            text=f"it is {record.state}" if record else "it is not in the log",
            sequence=record.sequence if record else 0,
        )


def _faults_of_life(life: Sequence[Entry]) -> Iterator[tuple[Rule, int, str]]:
    ends = [number for number, event in life if isinstance(event, ENDS)]
    if ends and ends != [life[-1][0]]:
        yield Rule.ONCE, ends[0], f"it ends at {ends}, and its last event is {life[-1][0]}"
    starts = [(number, event) for number, event in life if isinstance(event, JobStarted)]
    for (_, earlier), (number, later) in pairwise(starts):
        if later.attempt < earlier.attempt:
            text = f"attempt {later.attempt} after attempt {earlier.attempt}"
            yield Rule.TOKEN, number, text
    running: JobStarted | None = None
    for number, event in life:
        if isinstance(event, JobStarted):
            running = event
        elif isinstance(event, _BY_THE_ATTEMPT) and running and not _is_by(running, event):
            text = f"{event.name} by {event.source}, while {running.source} runs the job"
            yield Rule.OUTDATED, number, text


def _is_by(running: JobStarted, event: JobEvent) -> bool:
    attempt = getattr(event, "attempt", running.attempt)
    return (event.source, attempt) == (running.source, running.attempt)


def _name(event: Event | UnknownEvent) -> str:
    return event.type if isinstance(event, UnknownEvent) else event.name


def _lives(history: History) -> list[Sequence[Entry]]:
    """The events of each life; a requeue begins another, also where the end before left the log."""
    starts = [n for n, (_, event) in enumerate(history) if n and isinstance(event, JobRevived)]
    return [history[begin:end] for begin, end in pairwise([0, *starts, len(history)])]
