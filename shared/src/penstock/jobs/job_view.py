"""A job as it is shown: its record, its events, and its result decoded."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.events.envelope import Event, UnknownEvent
from penstock.events.subjects import check_name
from penstock.jobs import lifecycle, registry
from penstock.jobs.errors import NotFound, WrongResult
from penstock.jobs.job_log import JobLog
from penstock.jobs.job_type import encode_result
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.payloads.encryption import KeyRing, about_result, is_sealed

_NOTHING = encode_result(None)
"""Also the result of a job whose error was ignored, whatever type its function declares."""


async def read(log: JobLog, job_id: str, ring: KeyRing) -> JobView:
    """A job as it is now.

    Args:
        log: the events of jobs.
        job_id: of the job.
        ring: keys that open an encrypted result.

    Raises:
        NotFound: no event of it is stored (any more).
    """
    events = await log.history(check_name("job", job_id))
    record = lifecycle.fold(events)
    if record is None:
        raise NotFound(f"no job of id {job_id!r}; its events may have aged out")
    return JobView(record=record, events=events, ring=ring)


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is now, with its history."""

    record: JobRecord
    events: tuple[tuple[int, Event | UnknownEvent], ...]
    ring: KeyRing = KeyRing()

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"JobView({fields})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        job = self.record
        named = [("id", job.id), ("function", job.function), ("queue", job.queue)]
        state = [("state", job.state.value), ("attempts", job.attempt), ("error", job.error)]
        return [*named, *state, ("events", len(self.events))]

    @property
    def state(self) -> State:
        return self.record.state

    @property
    def attempts(self) -> int:
        return self.record.attempt

    @property
    def error(self) -> Any:
        return self.record.error

    @property
    def result(self) -> Any:
        """The decoded result; None before completion.

        Raises:
            MissingKey, Undecryptable, WrongResult: it cannot be read here.
        """
        raw = self.record.result
        if is_sealed(raw):
            job = self.record
            raw = self.ring.open(raw, about_result(job.id, job.function, job.queue))
        if self.record.state is not State.COMPLETED or raw in (b"", _NOTHING):
            return None
        job_type = registry.REGISTRY.get(self.record.function)
        if job_type is None:
            return msgspec.msgpack.decode(raw)
        try:
            return job_type.decode_result(raw)
        except WrongResult as error:
            raise WrongResult(f"job {self.record.id}: {error}") from error
