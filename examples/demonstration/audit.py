"""The proof: each dispatched job's own events are read again, and must hold exactly one end."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
from examples.demonstration.answers import expected

from penstock.bus.protocol import Bus
from penstock.events.envelope import Event, UnknownEvent
from penstock.events.job import JOB_EVENTS, JobCancelled, JobCompleted, JobDead
from penstock.events.subjects import Subjects
from penstock.jobs import lifecycle
from penstock.jobs.payloads import payload

ENDS = (JobCompleted, JobDead, JobCancelled)
Events = Sequence[tuple[int, Event | UnknownEvent]]


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """What the event log proves.

    Attributes:
        dispatched: jobs whose dispatch the broker confirmed.
        ended: jobs with exactly one end.
        ends: number of jobs by kind of end.
        problems: a sentence for each job that did not end as expected.
        answers: results of Spark jobs that were compared with plain Python's.
        wrong: results that differ.
    """

    dispatched: int
    ended: int
    ends: dict[str, int]
    problems: tuple[str, ...]
    answers: int = 0
    wrong: int = 0

    @property
    def clean(self) -> bool:
        return not self.problems and self.ended == self.dispatched


async def audit(bus: Bus, subjects: Subjects, dispatched: Collection[str]) -> Audit:
    """Reads each job's events from the stream."""
    logged = await bus.count(subjects.events_stream, subjects.events("job", "*", "JobDispatched"))
    histories: dict[str, Events] = {}
    for job_id in dispatched:
        stored = await bus.history(subjects.events_stream, subjects.job(job_id))
        histories[job_id] = [
            (message.sequence, JOB_EVENTS.decode(message.body)) for message in stored
        ]
    return judge(histories, sum(logged.values()))


def judge(histories: Mapping[str, Events], logged: int) -> Audit:
    """The verdict over all jobs' events; ``logged``: dispatches that the stream holds."""
    ends: dict[str, int] = {}
    problems: list[str] = []
    answers: list[bool] = []
    for job_id, events in histories.items():
        job_ends = [event for _, event in events if isinstance(event, ENDS)]
        for event in job_ends:
            ends[event.name] = ends.get(event.name, 0) + 1
        if text := _problem(events, len(job_ends)):
            problems.append(f"job {job_id} {text}")
        elif (right := _answer_is_right(events)) is not None:
            answers.append(right)
            if not right:
                problems.append(f"job {job_id} gave another answer than plain Python")
    if logged != len(histories):
        problems.append(f"{len(histories)} jobs were dispatched, the log holds {logged}")
    return Audit(
        dispatched=len(histories),
        ended=sum(
            sum(isinstance(e, ENDS) for _, e in events) == 1 for events in histories.values()
        ),
        ends=ends,
        problems=tuple(problems),
        answers=len(answers),
        wrong=answers.count(False),
    )


def _problem(events: Events, ends: int) -> str:
    """What is wrong with one job; empty when nothing is."""
    if ends != 1:
        return f"has {ends} ends, expected one"
    record = lifecycle.fold(events)
    if record is None or record.state is lifecycle.State.COMPLETED:
        return ""
    why = record.error
    return f"ended {record.state}" + (f": {why.kind}: {why.message}" if why else "")


def _answer_is_right(events: Events) -> bool | None:
    """Whether a Spark job's result is plain Python's; None for other jobs."""
    record = lifecycle.fold(events)
    if record is None:
        return None
    call = payload.decode(record.payload)
    right = expected(call.function, msgspec.msgpack.decode(call.arguments))
    return None if right is None else msgspec.msgpack.decode(record.result) == right
