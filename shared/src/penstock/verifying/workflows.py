"""The rules of batches and graphs: counts, order, callbacks. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import NamedTuple

from penstock.events.batch import (
    BatchCancelled,
    BatchCompleted,
    BatchCreated,
    BatchFailed,
    Counts,
)
from penstock.events.envelope import UnknownEvent
from penstock.events.graph import (
    GraphCancelled,
    GraphCompleted,
    GraphFailed,
    GraphStarted,
    GraphStep,
)
from penstock.events.graph import Rule as StepRule
from penstock.events.job import JobCancelled, JobCompleted, JobDead, JobDispatched, JobRevived
from penstock.jobs import derived_ids
from penstock.jobs.batches import batch_record
from penstock.jobs.batches.slots import Slot
from penstock.jobs.workflows import graph_record, graph_waits
from penstock.verifying.rules import History, Rule, Violation

_BATCH_ENDS = (BatchCompleted, BatchFailed, BatchCancelled)
_GRAPH_ENDS = (GraphCompleted, GraphFailed, GraphCancelled)
_STANDS: dict[type, str] = {
    JobDispatched: "pending",
    JobRevived: "pending",
    JobCompleted: "completed",
    JobDead: "failed",
    JobCancelled: "cancelled",
}
_CALLBACK = re.compile(r"(.{1,36})_(then|catch|finally)(?:_[0-9]{1,4})?")
_SUCCESS = {"then": True, "catch": False, "finally": None}


class End(NamedTuple):
    """An end of a batch or graph; one that is reopened has several.

    Attributes:
        sequence: of the event.
        previous: sequence of the event before it: the orchestrator had seen all up to there.
        success: whether it completed.
        counts: of the jobs of a batch.
    """

    sequence: int
    previous: int
    success: bool
    counts: Counts


def is_whole(history: History) -> bool:
    """Whether the log holds the first event of this batch or graph."""
    return bool(history) and isinstance(history[0][1], BatchCreated | GraphStarted)


# --- batches --------------------------------------------------------------------------------------
def check_batch(batch_id: str, history: History) -> Iterator[Violation]:
    """What breaks a rule in the batch's own events."""
    whole = is_whole(history)
    yield from _illegal(f"batch {batch_id}", history, batch_record.ignored_events, whole)
    record = None
    for number, event in history if whole else ():
        record = batch_record.advance(record, event, number)
        if isinstance(event, _BATCH_ENDS) and event.counts.pending:
            yield _batch(batch_id, number, f"it ended with {event.counts.pending} jobs pending")
        if isinstance(event, BatchCompleted) and record:
            allowed = record.allowed(event.counts.total)
            if event.counts.failed > allowed:
                text = f"it completed with {event.counts.failed} failed jobs of {allowed} allowed"
                yield _batch(batch_id, number, text)


def batch_ends(history: History) -> tuple[End, ...]:
    """The ends of a batch whose creation is in the log."""
    return tuple(
        End(number, previous, isinstance(event, BatchCompleted), event.counts)
        for (previous, _), (number, event) in pairwise(history)
        if isinstance(event, _BATCH_ENDS)
    )


def standing(history: History, end: End) -> str:
    """How a job of a batch stands at an end of the batch: a field of `Counts`, or empty.

    A dispatch or requeue since the event before the end may have come after the orchestrator's
    count, and is left out.
    """
    stands = ""
    for number, event in history:
        if number > end.sequence:
            break
        begins = isinstance(event, JobDispatched | JobRevived)
        if begins and number > end.previous:
            continue
        stands = _STANDS.get(type(event), stands)
    return stands


def check_counts(batch_id: str, end: End, recount: Counter[str]) -> Iterator[Violation]:
    """An end's counts against the jobs' own events.

    Args:
        batch_id: of the batch.
        end: one of its ends.
        recount: its jobs by :func:`standing` at this end.
    """
    counts = Counts(**{name: recount[name] for name in Counts.__struct_fields__})
    if counts != end.counts:
        text = f"it counts {_counts(end.counts)}; its jobs' events add up to {_counts(counts)}"
        yield _batch(batch_id, end.sequence, text)


def _batch(batch_id: str, number: int, text: str) -> Violation:
    return Violation(rule=Rule.BATCH, subject=f"batch {batch_id}", text=text, sequence=number)


def _counts(counts: Counts) -> str:
    named = {name: getattr(counts, name) for name in Counts.__struct_fields__}
    return ", ".join(f"{number} {name}" for name, number in named.items() if number) or "no job"


# --- graphs ---------------------------------------------------------------------------------------
def check_graph(
    graph_id: str, history: History, steps: Mapping[int, History] | None
) -> Iterator[Violation]:
    """What breaks a rule in a graph's events, and in the order of its steps.

    Args:
        graph_id: of the graph.
        history: its own events.
        steps: the events of each step's job, by the step's position; None where they may be
            missing, and the order cannot be judged.
    """
    yield from _illegal(
        f"graph {graph_id}", history, graph_record.ignored_events, is_whole(history)
    )
    first = history[0][1]
    if steps is None or not isinstance(first, GraphStarted):
        return
    for number, text in _out_of_order(first.steps, history, steps):
        yield Violation(rule=Rule.GRAPH, subject=f"graph {graph_id}", text=text, sequence=number)


def _out_of_order(
    steps: Sequence[GraphStep], history: History, jobs: Mapping[int, History]
) -> Iterator[tuple[int, str]]:
    is_plain = all(map(_is_plain, steps))
    has_passed, passed = (_completed, "completed") if is_plain else (_ended, "ended")
    for index, events in jobs.items():
        if index >= len(steps):
            yield events[0][0], f"step {index} was dispatched, the graph has {len(steps)} steps"
            continue
        begins = [n for n, event in events if isinstance(event, JobDispatched | JobRevived)]
        for number, need in product(begins, steps[index].needs):
            is_wait = steps[need].wait is not None
            if is_wait and _waits(history, need, number):
                text = f"while {steps[need].name!r} still waited"
                yield number, f"step {steps[index].name!r} was dispatched {text}"
            elif not is_wait and not has_passed(jobs.get(need, []), number):
                needed = steps[need].name
                yield (
                    number,
                    f"step {steps[index].name!r} was dispatched before {needed!r} had {passed}",
                )
    for number in [n for n, event in history if isinstance(event, GraphCompleted)]:
        missing = [
            repr(step.name)
            for index, step in enumerate(steps)
            if not has_passed(jobs.get(index, []), number)
        ]
        if missing:
            yield number, f"it completed without {', '.join(missing[:5])}"


def _is_plain(step: GraphStep) -> bool:
    """Whether a step runs when all before it have completed, and in no other case."""
    conditions = (step.when, step.join, step.wait, step.compensates)
    is_usual = step.rule is StepRule.NONE_FAILED and not step.may_fail
    return is_usual and conditions == (None,) * 4


def _ended(history: History, at: int) -> bool:
    """Whether the job does not live just before sequence ``at``; one that was skipped never did."""
    last = [type(event) for number, event in history if number < at and type(event) in _STANDS]
    return not last or _STANDS[last[-1]] != "pending"


def _waits(history: History, position: int, at: int) -> bool:
    """Whether a step waited for a time or a signal just before sequence ``at``."""
    record = graph_record.fold((number, event) for number, event in history if number < at)
    return record is not None and graph_waits.slots(record).get(position) is Slot.PENDING


def graph_ends(history: History) -> tuple[End, ...]:
    """The ends of a graph whose start is in the log."""
    return tuple(
        End(number, 0, isinstance(event, GraphCompleted), Counts())
        for number, event in history
        if isinstance(event, _GRAPH_ENDS)
    )


def _completed(history: History, at: int) -> bool:
    """Whether the job had completed before sequence ``at``; what completed is never requeued."""
    return any(isinstance(event, JobCompleted) and number < at for number, event in history)


# --- both -----------------------------------------------------------------------------------------
def owner(job_id: str) -> tuple[str, str]:
    """Id of the batch or graph that a job is a callback of, and which; empty for other jobs."""
    match = _CALLBACK.fullmatch(job_id)
    return (match[1], match[2]) if match else ("", "")


def check_callback(
    job_id: str, which: str, history: History, ends: tuple[End, ...]
) -> Iterator[Violation]:
    """A callback comes after an end of its batch or graph, ``then`` after a success.

    Args:
        job_id: of the callback's job.
        which: ``then``, ``catch`` or ``finally``.
        history: its events.
        ends: of its batch or graph.
    """
    number, event = history[0]
    if not isinstance(event, JobDispatched):
        return
    wanted = _SUCCESS[which]
    if not any(end.sequence < number and wanted in (None, end.success) for end in ends):
        how = {True: "completed", False: "failed", None: "ended"}[wanted]
        yield Violation(
            rule=Rule.CALLBACK,
            subject=f"job {job_id}",
            text=f"it was dispatched before its batch or graph had {how}",
            sequence=number,
        )


def graph_of(job_id: str) -> str:
    """The graph or workflow whose history a job's is checked with; empty for none.

    Of workflows that are steps of one another, the first: each is checked with its own steps.
    """
    first = job_id
    while step := derived_ids.step(first):
        first = step[0]
    return first if first != job_id else owner(job_id)[0]


def _illegal(
    subject: str,
    history: History,
    ignored: Callable[[History], Iterator[tuple[int, str]]],
    whole: bool,
) -> Iterator[Violation]:
    """Events out of order. Of one whose first events left the log only what cannot be read."""
    unreadable = {number for number, event in history if isinstance(event, UnknownEvent)}
    for number, reason in ignored(history):
        if number in unreadable:
            yield Violation(rule=Rule.READABLE, subject=subject, text=reason, sequence=number)
        elif whole:
            yield Violation(rule=Rule.LEGAL, subject=subject, text=reason, sequence=number)
