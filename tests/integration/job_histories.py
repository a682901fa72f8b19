"""The oracle: reads the whole event log and says what must not be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

from penstock.bus.protocol import Bus
from penstock.events.envelope import Event, UnknownEvent
from penstock.events.job import (
    JOB_EVENTS,
    JobCancelled,
    JobCompleted,
    JobDead,
    JobEvent,
    JobRevived,
    JobStarted,
)
from penstock.events.subjects import Subjects
from penstock.jobs import lifecycle
from penstock.jobs.lifecycle import JobRecord

ENDS = (JobCompleted, JobDead, JobCancelled)

Histories = dict[str, list[tuple[int, Event | UnknownEvent]]]


async def read_all(bus: Bus, subjects: Subjects) -> Histories:
    """``(sequence, event)`` of every job of an installation, as stored until now."""
    stream, pattern = subjects.events_stream, subjects.events("job")
    found: Histories = defaultdict(list)
    end = await bus.last(stream, pattern)
    if end is None:
        return found
    async for stored in bus.follow(stream, [pattern], start="all"):
        found[stored.subject.split(".")[3]].append(
            (stored.sequence, JOB_EVENTS.decode(stored.body))
        )
        if stored.sequence >= end.sequence:
            break
    return found


def check(histories: Histories, acknowledged: Iterable[str]) -> dict[str, JobRecord]:
    """The jobs' records.

    Asserts of every job that its history folds, that nothing follows its end but a life that
    somebody asked for by hand, and that its fencing tokens grow; of those whose dispatch was
    acknowledged that they have ended, once in each life.
    """
    records: dict[str, JobRecord] = {}
    for job_id, history in histories.items():
        record = lifecycle.fold(history)  # raises IllegalTransition
        assert record is not None, job_id
        records[job_id] = record
        story = [(sequence, getattr(event, "name", "?")) for sequence, event in history]
        for last, life in _lives(history):
            ends = [sequence for sequence, event in life if isinstance(event, ENDS)]
            assert len(ends) == 1 if not last else len(ends) <= 1, story
            assert not ends or ends == [life[-1][0]], story
            attempts = [event.attempt for _, event in life if isinstance(event, JobStarted)]
            assert attempts == sorted(attempts), story
        tokens = [sequence for sequence, event in history if isinstance(event, JobStarted)]
        assert tokens == sorted(set(tokens)), story
        assert all(isinstance(event, JobEvent) for _, event in history), story
    open_ones = [j for j in acknowledged if j not in records or not records[j].state.ended]
    assert not open_ones, {j: histories.get(j) for j in open_ones[:3]}
    return records


def _lives(
    history: list[tuple[int, Event | UnknownEvent]],
) -> list[tuple[bool, list[tuple[int, Event | UnknownEvent]]]]:
    """The events of each life, and whether it is the last."""
    starts = [n for n, (_, event) in enumerate(history) if n and isinstance(event, JobRevived)]
    bounds = [0, *starts, len(history)]
    lives = [history[a:b] for a, b in pairwise(bounds)]
    return [(life is lives[-1], life) for life in lives]
