"""Names of the jobs that belong together: made from the name of the whole, so made once. Pure.

A job's identifier tells where it belongs. Whoever dispatches it again, after a crash say, gives it
the same one, and the broker takes it once; whoever reads the event log knows the batch of a job
from the subject alone.
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
"""In one lane of a batch: what one caller adds under one key."""
_DIGITS = len(str(MAX_JOBS - 1))
_MEMBER = re.compile(rf"(.{{1,36}})_([0-9a-f]{{8}})_([0-9]{{1,{_DIGITS}}})")
_STEP = re.compile(r"(.{1,36})_step_([0-9]{1,4})")
_ROUND = re.compile(r"(_(?:then|catch|finally))_[0-9]{1,4}$")


class Member(NamedTuple):
    """A job's place in its batch.

    Attributes:
        lane: who added it; its numbers are counted from 0.
    """

    batch: str
    lane: str
    number: int

    @property
    def job_id(self) -> str:
        return f"{self.batch}_{self.lane}_{self.number}"


def member(job_id: str) -> Member | None:
    """The place that an identifier tells of; None for a job of no batch."""
    found = _MEMBER.fullmatch(job_id) if "_" in job_id else None
    return Member(found[1], found[2], int(found[3])) if found else None


def job_ids(batch: str, lane: str, start: int) -> Iterator[str]:
    """Identifiers of the jobs that are added in a lane, from number ``start`` on.

    Raises:
        JobRefused: the lane is full. A further number would not be read as a job of the batch,
            which would end without it.
    """
    for number in range(start, MAX_JOBS):
        yield Member(batch, lane, number).job_id
    raise JobRefused(
        f"batch {batch}: at most {MAX_JOBS:,} jobs are added under one key; add the rest by "
        "another call of add() without a key, or with another one"
    )


def lane(key: str) -> str:
    """The lane of whoever adds jobs under ``key``."""
    return hashlib.blake2b(key.encode(), digest_size=4).hexdigest()


def step_id(graph: str, index: int) -> str:
    return f"{graph}_step_{index}"


def step(job_id: str) -> tuple[str, int] | None:
    """Graph and index of a step; None for a job that is none."""
    found = _STEP.fullmatch(job_id) if "_step_" in job_id else None
    return (found[1], int(found[2])) if found else None


def callback_id(whole: str, which: str, again: int = 0) -> str:
    """Args: which: ``then``, ``catch`` or ``finally``. again: how often the whole was reopened."""
    return f"{whole}_{which}" + (f"_{again}" if again else "")


def first_callback(job_id: str) -> str:
    """A callback's identifier as it was before anything was reopened; others as they are."""
    return _ROUND.sub(r"\1", job_id) if "_" in job_id else job_id


def check_whole(kind: str, name: str) -> str:
    """``name`` if a batch or graph may be called so.

    Raises:
        BadName: says what was found and what is allowed.
    """
    check_name(kind, name)
    if len(name) > MAX_ID_LENGTH or member(name) or step(name):
        raise BadName(
            f"{kind} name {name!r} is not allowed: it has at most {MAX_ID_LENGTH} characters and "
            "does not look like the name of a job in a batch"
        )
    return name
