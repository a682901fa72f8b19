"""Assertions about how jobs ended, and errors that a test has them raise."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from penstock.events.job import JOB_EVENTS
from penstock.jobs import lifecycle
from penstock.jobs.errors import Defer
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.job_type import JobType
from penstock.jobs.lifecycle import JobRecord
from penstock.testing.dispatched import Dispatched
from penstock.testing.memory.bus import MemoryBus

ANY_RESULT: Any = object()


class Ended(msgspec.Struct, frozen=True):
    """A job and its state: for messages of assertions."""

    job: Dispatched
    record: JobRecord

    def __str__(self) -> str:
        error = self.record.error
        why = f": {error.kind}: {error.message}" if error else ""
        return f"{self.job} is {self.record.state}, attempt {self.record.attempt}{why}"


def records(bus: MemoryBus) -> dict[str, JobRecord]:
    """Every job as its events add up, by id."""
    histories: dict[str, list[Any]] = {}
    subjects = bus.subjects
    for stored in bus.stored(subjects.events_stream, subjects.events("job")):
        job_id = stored.subject.split(".")[-2]
        event = read_event(stored, JOB_EVENTS)
        histories.setdefault(job_id, []).append((stored.sequence, event))
    folded = {job_id: lifecycle.fold(history) for job_id, history in histories.items()}
    return {job_id: record for job_id, record in folded.items() if record}


def with_result(ended: list[Ended], result: Any) -> list[Ended]:
    """Those whose result is ``result``, which is compared as it travels."""
    if result is ANY_RESULT:
        return ended
    wanted = msgspec.msgpack.decode(msgspec.msgpack.encode(result))
    return [one for one in ended if _result(one.record) == wanted]


def _result(record: JobRecord) -> Any:
    """What the job returned, as plain values; that of an encrypted job is equal to nothing."""
    try:
        return msgspec.msgpack.decode(record.result) if record.result else None
    except msgspec.DecodeError:
        return ANY_RESULT


def with_error(ended: list[Ended], error: type[BaseException] | str | None) -> list[Ended]:
    """Those that ended with such an error: its class, or the kind that `JobView.error` has."""
    if error is None:
        return ended
    kinds = {error} if isinstance(error, str) else set(_kinds(error))
    return [one for one in ended if one.record.error and one.record.error.kind in kinds]


def _kinds(error: type[BaseException]) -> Iterator[str]:
    yield f"{error.__module__}.{error.__qualname__}"
    if getattr(builtins, error.__name__, None) is error:
        yield error.__name__


@contextmanager
def failing(
    job: JobType[Any, Any],
    error: BaseException | type[BaseException],
    times: int | None,
    arguments: Mapping[str, Any],
) -> Iterator[None]:
    """See :meth:`penstock.testing.Bench.failing`."""
    original, left = job.function, [times]

    def raises(given: Mapping[str, Any]) -> bool:
        if any(given.get(name) != value for name, value in arguments.items()):
            return False
        if left[0] is None:
            return True
        left[0] -= 1
        return left[0] >= 0

    job.function = _raising(original, error, raises, job.is_async)
    try:
        yield
    finally:
        job.function = original


def _raising(
    function: Callable[..., Any],
    error: BaseException | type[BaseException],
    raises: Callable[[Mapping[str, Any]], bool],
    is_async: bool,
) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        if raises(kwargs):
            raise error
        return function(*args, **kwargs)

    async def run_async(*args: Any, **kwargs: Any) -> Any:
        if raises(kwargs):
            raise error
        return await function(*args, **kwargs)

    return run_async if is_async else run


_HELD = "held by the test"
_HELD_SECONDS = 366 * 86_400.0


@contextmanager
def holding(bus: MemoryBus, job: JobType[Any, Any], arguments: Mapping[str, Any]) -> Iterator[None]:
    """See :meth:`penstock.testing.Bench.holding`."""
    if job.kind:
        raise TypeError(f"{job.name} is a {job.kind}; hold the jobs that are its steps")
    with failing(job, Defer(_HELD_SECONDS, _HELD), None, arguments):
        yield
    for subject in held_subjects(bus, job.name):
        bus.fire(subject)


def held_subjects(bus: MemoryBus, function: str = "") -> set[str]:
    """Subjects of the schedules of jobs that a test holds.

    Args:
        bus: a client of the broker.
        function: only its jobs; empty for all.
    """
    return {
        bus.subjects.schedule(record.queue, record.id)
        for record in records(bus).values()
        if record.put_off == _HELD and not record.state.ended and function in ("", record.function)
    }
