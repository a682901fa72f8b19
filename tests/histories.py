"""The oracle: reads the whole event log and says what must not be.

Pure but for `read_all`; `tests/chaos/test_oracle.py` forges a history that breaks each rule.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from penstock.bus.protocol import Bus
from penstock.events.batch import Counts
from penstock.events.envelope import Event, UnknownEvent
from penstock.events.job import (
    JOB_EVENTS,
    JobCancelled,
    JobCarried,
    JobCommitted,
    JobCompleted,
    JobDead,
    JobEvent,
    JobFailed,
    JobProgressed,
    JobRevived,
    JobStarted,
)
from penstock.events.subjects import Subjects
from penstock.jobs import lifecycle
from penstock.jobs.derived_ids import member
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.lifecycle import JobRecord, State

ENDS = (JobCompleted, JobDead, JobCancelled)
_BY_THE_ATTEMPT = (JobCompleted, JobFailed, JobProgressed, JobCommitted)

Entry = tuple[int, Event | UnknownEvent]
Story = Sequence[Entry]
Histories = Mapping[str, Story]


class Rule(StrEnum):
    ENDS = "an acknowledged dispatch ends, and so does what is in the log"
    ONCE = "a life has one end and nothing follows it"
    LEGAL = "events follow the table of transitions"
    TOKEN = "fencing tokens and attempts grow"
    DEPOSED = "only the attempt that runs records what it does"
    COUNTS = "a batch's counts equal a recount of its jobs' own events"
    RECOUNT = "the broker counts as many events as were read"
    RUNS = "a completed job ran, and what ran had a token"
    EXPIRED = "no job expires before its time"
    EXCLUSIVE = "two jobs of an exclusive queue never run at a time"


class Breach(NamedTuple):
    rule: Rule
    about: str
    why: str

    def __str__(self) -> str:
        return f"{self.about}: {self.why} (rule: {self.rule})"


class Run(NamedTuple):
    """What a job itself saw of one of its attempts: seconds of a clock that all processes share."""

    job_id: str
    token: int
    began: float
    last_seen: float


async def read_all(bus: Bus, subjects: Subjects) -> dict[str, list[Entry]]:
    """``(sequence, event)`` of every job of an installation, as stored until now."""
    stream, pattern = subjects.events_stream, subjects.events("job")
    found: dict[str, list[Entry]] = defaultdict(list)
    end = await bus.last(stream, pattern)
    if end is None:
        return found
    async for stored in bus.follow(stream, [pattern], start="all"):
        found[stored.subject.split(".")[3]].append(
            (stored.sequence, read_event(stored, JOB_EVENTS))
        )
        if stored.sequence >= end.sequence:
            break
    return found


def check(histories: Histories, acknowledged: Iterable[str]) -> dict[str, JobRecord]:
    """The jobs' records. Asserts that none breaks a rule and that those acknowledged ended."""
    found = [*broken(histories), *unended(histories, acknowledged)]
    assert not found, "\n".join(map(str, found[:5]))
    return {job_id: record for job_id, record in _records(histories).items() if record}


def broken(histories: Histories) -> list[Breach]:
    """What no history may hold, whether or not its job has ended."""
    return [
        Breach(rule, job_id, f"{why}; its story: {_told(story)}")
        for job_id, story in histories.items()
        for rule, why in _faults(story)
    ]


def unended(histories: Histories, acknowledged: Iterable[str]) -> list[Breach]:
    records = _records(histories)
    return [
        Breach(Rule.ENDS, job_id, f"it is {record.state}" if record else "it is not in the log")
        for job_id, record in ((each, records.get(each)) for each in acknowledged)
        if record is None or not record.state.ended
    ]


def miscounted(histories: Histories, batches: Mapping[str, tuple[int, Counts]]) -> list[Breach]:
    """Batches whose counts are wrong.

    Args:
        batches: how many jobs each was made of, and what it says of them.
    """
    ends: dict[str, Counter[str]] = defaultdict(Counter)
    for job_id, record in _records(histories).items():
        place = member(job_id)
        if place and record:
            ends[place.batch][_COUNTED.get(record.state, "pending")] += 1
    return [
        Breach(Rule.COUNTS, batch_id, f"{size} jobs, it says {counts}, recounted {recounted}")
        for batch_id, (size, counts) in batches.items()
        for recounted in [Counts(**ends[batch_id])]
        if counts != recounted or recounted.total != size
    ]


def unread(histories: Histories, counted: Mapping[str, int]) -> list[Breach]:
    """Jobs of which the broker has another number of events than were read.

    Args:
        counted: events by subject, as the broker counts them.
    """
    by_job: Counter[str] = Counter()
    for subject, number in counted.items():
        by_job[subject.split(".")[3]] += number
    return [
        Breach(Rule.RECOUNT, job_id, f"read {len(histories.get(job_id, ()))}, counted {number}")
        for job_id, number in by_job.items()
        if len(histories.get(job_id, ())) != number
    ]


def unwitnessed(
    histories: Histories, runs: Iterable[Run], witnesses: Iterable[str]
) -> list[Breach]:
    """What was recorded and did not happen, or happened and was not recorded.

    Args:
        witnesses: jobs that tell of their runs.
    """
    ran: dict[str, set[int]] = defaultdict(set)
    for run in runs:
        ran[run.job_id].add(run.token)
    found: list[Breach] = []
    for job_id in {*witnesses, *ran}:
        events = histories.get(job_id, ())
        starts = {sequence for sequence, event in events if isinstance(event, JobStarted)}
        if ran[job_id] - starts:
            found.append(Breach(Rule.RUNS, job_id, f"ran as {ran[job_id]}, started as {starts}"))
        completed = any(isinstance(event, JobCompleted) for _, event in events)
        if completed and not ran[job_id]:
            found.append(Breach(Rule.RUNS, job_id, "completed, and never ran"))
    return found


def expired(histories: Histories) -> list[Breach]:
    """Jobs that ended as expired, where none has a time that could have come."""
    return [
        Breach(Rule.EXPIRED, job_id, f"expired at {sequence}")
        for job_id, story in histories.items()
        for sequence, event in story
        if isinstance(event, JobCancelled) and event.cause == "expired"
    ]


def overlapping(runs: Iterable[Run]) -> list[Breach]:
    """Runs of one exclusive queue of which the earlier goes on after the later has begun."""
    ordered = sorted(runs, key=lambda run: run.began)
    until = 0.0
    found: list[Breach] = []
    for earlier, run in pairwise(ordered):
        until = max(until, earlier.last_seen)
        if run.began < until:
            found.append(
                Breach(Rule.EXCLUSIVE, run.job_id, f"began {until - run.began:.3f} s too early")
            )
        if run.token < earlier.token:
            found.append(Breach(Rule.TOKEN, run.job_id, f"{run.token} after {earlier.token}"))
    return found


_COUNTED = {State.COMPLETED: "completed", State.DEAD: "failed", State.CANCELLED: "cancelled"}


def _records(histories: Histories) -> dict[str, JobRecord | None]:
    return {job_id: lifecycle.fold(story) for job_id, story in histories.items()}


def _faults(story: Story) -> Iterator[tuple[Rule, str]]:
    for sequence, why in lifecycle.ignored_events(story):
        yield Rule.LEGAL, f"at {sequence}: {why}"
    if not all(isinstance(event, JobEvent) for _, event in story):
        yield Rule.LEGAL, "an event that nobody knows"
    sequences = [sequence for sequence, _ in story]
    if sequences != sorted(set(sequences)):
        yield Rule.TOKEN, "sequences do not grow"
    for life in _lives(tuple(entry for entry in story if not isinstance(entry[1], JobCarried))):
        yield from _faults_of_life(life)


def _faults_of_life(life: Story) -> Iterator[tuple[Rule, str]]:
    ends = [sequence for sequence, event in life if isinstance(event, ENDS)]
    if ends and ends != [life[-1][0]]:
        yield Rule.ONCE, f"ends at {ends}, its last event is {life[-1][0]}"
    attempts = [event.attempt for _, event in life if isinstance(event, JobStarted)]
    if attempts != sorted(attempts):
        yield Rule.TOKEN, f"attempts {attempts}"
    running: JobStarted | None = None
    for sequence, event in life:
        if isinstance(event, JobStarted):
            running = event
        elif isinstance(event, _BY_THE_ATTEMPT) and running and not _of(running, event):
            yield Rule.DEPOSED, f"{event.name} at {sequence} by {event.source}"


def _of(running: JobStarted, event: JobEvent) -> bool:
    """Whether the attempt that runs tells this."""
    attempt = getattr(event, "attempt", running.attempt)
    return (event.source, attempt) == (running.source, running.attempt)


def _lives(story: Story) -> list[Story]:
    """The events of each life; one that was over may have no end left in the log."""
    starts = [n for n, (_, event) in enumerate(story) if n and isinstance(event, JobRevived)]
    return [story[a:b] for a, b in pairwise([0, *starts, len(story)])]


def _told(story: Story) -> list[tuple[int, str]]:
    return [(sequence, getattr(event, "name", "?")) for sequence, event in story]
