"""Ids of jobs that are derived from the id of their batch or graph, so the same each time. Pure.

A job's id names where it belongs. A client that dispatches it again, after a crash say, derives the
same one, and the broker accepts it once; a reader of the event log has the batch of a job from the
subject alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from penstock.events.subjects import BadName, check_name
from penstock.jobs.errors import JobRefused

MAX_ID_LENGTH = 36
MAX_JOBS = 1_000_000
"""Of one producer of a batch: what one caller adds under one key."""
_DIGITS = len(str(MAX_JOBS - 1))
MAX_NESTING = 5
"""Workflows that are steps of one another, at most; each has an id ten characters longer."""
MAX_WORKFLOW_ID_LENGTH = 96
"""So that the jobs of a batch that is a step of it have ids of at most 128."""
_MEMBER = re.compile(rf"(.{{1,112}})_([0-9a-f]{{8}})_([0-9]{{1,{_DIGITS}}})")
_STEP = re.compile(rf"(.{{1,{MAX_WORKFLOW_ID_LENGTH}}})_step_([0-9]{{1,9}})")
_CALLBACK = re.compile(r".+_(?:then|catch|finally)(?:_[0-9]{1,4})?", re.DOTALL)
_ROUND = re.compile(r"(_(?:then|catch|finally))_[0-9]{1,4}$")


class Member(NamedTuple):
    """A job's position in its batch.

    Attributes:
        batch: id of the batch.
        producer: key of the producer that added it; its numbers are counted from 0.
        number: of the job among those of its producer.
    """

    batch: str
    producer: str
    number: int

    @property
    def job_id(self) -> str:
        return f"{self.batch}_{self.producer}_{self.number}"


def member(job_id: str) -> Member | None:
    """The position that a job's id names; None for a job of no batch."""
    match = _MEMBER.fullmatch(job_id) if "_" in job_id else None
    return Member(match[1], match[2], int(match[3])) if match else None


def job_ids(batch: str, producer: str, start: int) -> Iterator[str]:
    """Ids of the jobs that one producer adds, from number ``start`` on.

    Args:
        batch: id of the batch.
        producer: key of the producer; see :func:`producer_key`.
        start: number of the first.

    Raises:
        JobRefused: a million jobs have this key. A further number would not be read as a job of
            the batch, which would end without it.
    """
    for number in range(start, MAX_JOBS):
        yield Member(batch, producer, number).job_id
    raise JobRefused(
        f"batch {batch}: at most {MAX_JOBS:,} jobs are added under one key; add the rest by "
        "another call of add() without a key, or with another one"
    )


def producer_key(key: str) -> str:
    """The short form of a producer's key that stands in the ids of its jobs."""
    return hashlib.blake2b(key.encode(), digest_size=4).hexdigest()


def check_workflow_id(name: str) -> str:
    """``name`` if the steps of a workflow of this id can have theirs.

    Raises:
        BadName: names the id and what is allowed.
    """
    check_name("workflow", name)
    if name.count("_step_") > MAX_NESTING:
        raise BadName(
            f"workflow {name!r}: workflows that are steps of workflows nest at most {MAX_NESTING} "
            "deep; run it by itself, or wait for a signal of it"
        )
    if len(name) > MAX_WORKFLOW_ID_LENGTH:
        raise BadName(
            f"workflow name {name!r} is not allowed: it has at most {MAX_WORKFLOW_ID_LENGTH} "
            "characters"
        )
    return name


def started_id(job_id: str, name: str) -> str:
    """Id of the graph that a job starts of a definition, the same at each attempt."""
    return f"g-{hashlib.blake2b(f'{job_id} {name}'.encode(), digest_size=16).hexdigest()}"


def step_id(graph: str, index: int) -> str:
    return f"{graph}_step_{index}"


def step(job_id: str) -> tuple[str, int] | None:
    """Graph or workflow, and number, of a step; None for other jobs."""
    match = _STEP.fullmatch(job_id) if "_step_" in job_id else None
    return (match[1], int(match[2])) if match else None


def is_part(job_id: str) -> bool:
    """Whether a job is a step of a graph or workflow, or a job of a batch."""
    return step(job_id) is not None or member(job_id) is not None


def callback_id(owner: str, which: str, reopened: int = 0) -> str:
    """Id of the job that is a callback.

    Args:
        owner: id of the batch or graph.
        which: ``then``, ``catch`` or ``finally``.
        reopened: how often the batch or graph was reopened.
    """
    return f"{owner}_{which}" + (f"_{reopened}" if reopened else "")


def first_callback(job_id: str) -> str:
    """A callback's id as it was before its owner was reopened; other ids as they are."""
    return _ROUND.sub(r"\1", job_id) if "_" in job_id else job_id


def check_job_id(kind: str, name: str) -> str:
    """``name`` if a client may give it to a job of its own.

    Args:
        kind: what the job is, for the error.
        name: the id.

    Raises:
        BadName: it is the id of a step, of a job of a batch, or of a callback: these are derived,
            and the job would take the place of one to come.
    """
    check_name(kind, name)
    _check_no_callback(kind, name)
    if is_part(name):
        raise BadName(
            f"{kind} name {name!r} is not allowed: ids that end with _step_ and a number, or with "
            "a batch's key and a number, are those of steps and of jobs of batches"
        )
    return name


def check_workflow_job_id(name: str) -> str:
    """``name`` if a client may give it to a workflow, which is a job, too. Raises BadName."""
    _check_no_callback("workflow", name)
    return check_owner_id("workflow", name)


def _check_no_callback(kind: str, name: str) -> None:
    if _CALLBACK.fullmatch(name):
        raise BadName(
            f"{kind} name {name[:80]!r} is not allowed: ids that end with _then, _catch or _finally"
            " are those of the callbacks of batches and graphs"
        )


def check_batch_id(name: str) -> str:
    """``name`` if a batch may have it as its id, a step of a workflow too. Raises BadName."""
    position = step(name)
    if position:
        check_workflow_id(position[0])
        return check_name("batch", name)
    return check_owner_id("batch", name)


def check_owner_id(kind: str, name: str) -> str:
    """``name`` if a batch or graph may have it as its id.

    Args:
        kind: ``batch`` or ``graph``.
        name: the id.

    Raises:
        BadName: names the id and what is allowed.
    """
    check_name(kind, name)
    if len(name) > MAX_ID_LENGTH or member(name) or step(name):
        raise BadName(
            f"{kind} name {name!r} is not allowed: it has at most {MAX_ID_LENGTH} characters and "
            "does not look like the name of a job in a batch"
        )
    return name
