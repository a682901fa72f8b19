"""What was dispatched, read from the event log; and whether it is what a test looks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.events.job import JOB_EVENTS, JobDispatched
from penstock.jobs.dispatch.awaiting import Awaiting
from penstock.jobs.job_type import Call, JobType
from penstock.jobs.payloads import payload
from penstock.testing.memory.bus import MemoryBus

Wanted = Call | Awaiting | JobType[Any, Any]
"""A call with its arguments, or a function with any."""
MOST_LISTED = 20
"""Jobs that an error message names."""


class Dispatched(msgspec.Struct, frozen=True):
    """One job that was dispatched.

    Attributes:
        job_id: as `dispatch` returned it.
        function: its name.
        queue: where it waits, or waited.
        tags: its own and automatic ones.
        arguments: plain values, as they travel.
    """

    job_id: str
    function: str
    queue: str
    tags: tuple[str, ...]
    arguments: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.function}({_written(self.arguments)}) on {self.queue}"


def all_jobs(bus: MemoryBus) -> list[Dispatched]:
    """Every job, in the order of their dispatch."""
    pattern = bus.subjects.events("job", "*", JobDispatched.__name__)
    messages = bus.stored(bus.subjects.events_stream, pattern)
    events = [JOB_EVENTS.decode(stored.body) for stored in messages]
    return [of_payload(event.payload) for event in events if isinstance(event, JobDispatched)]


def of_payload(body: bytes) -> Dispatched:
    """The job that an encoded call is, or will be."""
    call = payload.decode(body)
    return Dispatched(call.id, call.function, call.queue, call.tags, _plain(call))


def fits(job: Dispatched, wanted: Wanted) -> bool:
    """Whether a job is of that function, and has those arguments if any are given."""
    if isinstance(wanted, JobType):
        return job.function == wanted.name
    arguments: dict[str, Any] = msgspec.msgpack.decode(wanted.arguments)
    same = (
        arguments.items() <= job.arguments.items()
        if isinstance(wanted, Awaiting)
        else (arguments == job.arguments)
    )
    return job.function == wanted.job.name and same


def described(wanted: Wanted) -> str:
    if isinstance(wanted, JobType):
        return f"{wanted.name}(…)"
    return f"{wanted.job.name}({_written(msgspec.msgpack.decode(wanted.arguments))})"


def listed(jobs: Sequence[Dispatched]) -> str:
    """For the end of an error message."""
    if not jobs:
        return "nothing was dispatched"
    lines = [f"  {job}" for job in jobs[:MOST_LISTED]]
    rest = [f"  and {len(jobs) - MOST_LISTED} more"] if len(jobs) > MOST_LISTED else []
    return "\n".join(["dispatched were:", *lines, *rest])


def _plain(call: payload.Payload) -> dict[str, Any]:
    arguments: dict[str, Any] = msgspec.msgpack.decode(call.all_arguments())
    return arguments


def _written(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
