"""Histories of a running installation, judged by the product's rules and by other evidence.

What an event log alone shows is judged by `penstock.verifying`, as `penstock verify` does it. The
rules here need more: what jobs saw of their own runs, and what the broker counts.
`tests/chaos/test_oracle.py` breaks each.
"""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from penstock.bus.protocol import Bus
from penstock.cli.verify.judging import Judge
from penstock.cli.verify.saved_events import from_broker
from penstock.events.batch import Counts
from penstock.events.envelope import UnknownEvent
from penstock.events.job import JOB_EVENTS, JobCancelled, JobCompleted, JobStarted
from penstock.events.subjects import Subjects
from penstock.jobs.derived_ids import member
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.lifecycle import JobRecord
from penstock.verifying import jobs, workflows
from penstock.verifying.rules import Entry, History, Rule
from penstock.verifying.workflows import End

Histories = Mapping[str, History]
_AT_LAST = 2**63 - 1


class Evidence(StrEnum):
    """Rules that an event log alone does not show."""

    RECOUNT = "the broker counts as many events as were read"
    RUNS = "a completed job ran, and what ran had a token"
    EXPIRED = "no job expires before its time"
    EXCLUSIVE = "two jobs of an exclusive queue never run at a time"
    OUTCOME = "a workflow ends as its program says"
    VERSION = "all events are of this version"


class Breach(NamedTuple):
    rule: Rule | Evidence
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
    histories: dict[str, list[Entry]] = defaultdict(list)
    end = await bus.last(stream, pattern)
    if end is None:
        return histories
    async for stored in bus.follow(stream, [pattern], start="all"):
        histories[stored.subject.split(".")[3]].append(
            (stored.sequence, read_event(stored, JOB_EVENTS))
        )
        if stored.sequence >= end.sequence:
            break
    return histories


async def verified(bus: Bus, subjects: Subjects) -> list[Breach]:
    """What `penstock verify` reports of an installation, all of whose jobs have ended."""
    with tempfile.TemporaryDirectory() as folder, closing(Judge(Path(folder), 1)) as judge:
        extent = await from_broker(bus, subjects, None, judge.take, lambda share: None)
        report = judge.report(extent, must_end=True, acknowledged=(), progress=lambda share: None)
    return [Breach(one.rule, one.subject, one.text) for one in report.violations]


def check(histories: Histories, acknowledged: Iterable[str]) -> dict[str, JobRecord]:
    """The jobs' records. Asserts that none breaks a rule and that those acknowledged ended."""
    breaches = [*broken(histories), *unended(histories, acknowledged)]
    assert not breaches, "\n".join(map(str, breaches[:5]))
    return {job_id: record for job_id, record in _records(histories).items() if record}


def broken(histories: Histories) -> list[Breach]:
    """What no history may hold, whether or not its job has ended."""
    breaches = [
        Breach(violation.rule, job_id, f"{violation.text}; its events: {_names(history)}")
        for job_id, history in histories.items()
        for violation in jobs.check_job(job_id, history, trimmed=False)
    ]
    for job_id, history in histories.items():
        later = [event.type for _, event in history if isinstance(event, UnknownEvent)]
        breaches += [Breach(Evidence.VERSION, job_id, name) for name in later]
    return breaches


def unended(histories: Histories, acknowledged: Iterable[str]) -> list[Breach]:
    records = _records(histories)
    return [
        Breach(violation.rule, violation.subject, violation.text)
        for job_id in acknowledged
        for violation in jobs.check_ended(job_id, records.get(job_id))
    ]


def miscounted(histories: Histories, batches: Mapping[str, tuple[int, Counts]]) -> list[Breach]:
    """Batches whose counts are wrong.

    Args:
        batches: how many jobs each was made of, and what it counts.
    """
    ends = {batch: End(_AT_LAST, _AT_LAST, True, counts) for batch, (_, counts) in batches.items()}
    recounts: dict[str, Counter[str]] = defaultdict(Counter)
    for job_id, history in histories.items():
        position = member(job_id)
        if position and position.batch in ends:
            recounts[position.batch][workflows.standing(history, ends[position.batch])] += 1
    breaches = [
        Breach(violation.rule, violation.subject, violation.text)
        for batch, end in ends.items()
        for violation in workflows.check_counts(batch, end, recounts[batch])
    ]
    for batch, (size, _) in batches.items():
        if recounts[batch].total() != size:
            text = f"it was made of {size} jobs, {recounts[batch].total()} are in the log"
            breaches.append(Breach(Rule.BATCH, batch, text))
    return breaches


def unread(histories: Histories, counted: Mapping[str, int]) -> list[Breach]:
    """Jobs of which the broker has another number of events than were read.

    Args:
        counted: events by subject, as the broker counts them.
    """
    by_job: Counter[str] = Counter()
    for subject, number in counted.items():
        by_job[subject.split(".")[3]] += number
    return [
        Breach(Evidence.RECOUNT, job_id, f"read {len(histories.get(job_id, ()))}, counted {number}")
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
    breaches: list[Breach] = []
    for job_id in {*witnesses, *ran}:
        events = histories.get(job_id, ())
        starts = {sequence for sequence, event in events if isinstance(event, JobStarted)}
        if ran[job_id] - starts:
            breaches.append(
                Breach(Evidence.RUNS, job_id, f"ran as {ran[job_id]}, started as {starts}")
            )
        completed = any(isinstance(event, JobCompleted) for _, event in events)
        if completed and not ran[job_id]:
            breaches.append(Breach(Evidence.RUNS, job_id, "completed, and never ran"))
    return breaches


def expired(histories: Histories) -> list[Breach]:
    """Jobs that ended as expired, where none has a time that could have come."""
    return [
        Breach(Evidence.EXPIRED, job_id, f"expired at {sequence}")
        for job_id, history in histories.items()
        for sequence, event in history
        if isinstance(event, JobCancelled) and event.cause == "expired"
    ]


def overlapping(runs: Iterable[Run]) -> list[Breach]:
    """Runs of one exclusive queue of which the earlier goes on after the later has begun."""
    ordered = sorted(runs, key=lambda run: run.began)
    until = 0.0
    breaches: list[Breach] = []
    for earlier, run in pairwise(ordered):
        until = max(until, earlier.last_seen)
        if run.began < until:
            breaches.append(
                Breach(Evidence.EXCLUSIVE, run.job_id, f"began {until - run.began:.3f} s too early")
            )
        if run.token < earlier.token:
            breaches.append(Breach(Rule.TOKEN, run.job_id, f"{run.token} after {earlier.token}"))
    return breaches


def _records(histories: Histories) -> dict[str, JobRecord | None]:
    return {job_id: jobs.record_of(history) for job_id, history in histories.items()}


def _names(history: History) -> list[tuple[int, str]]:
    return [(sequence, getattr(event, "name", "?")) for sequence, event in history]
