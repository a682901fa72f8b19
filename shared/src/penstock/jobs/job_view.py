"""A job as it is shown: its record, its events, and its result decoded."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from penstock import telemetry
from penstock.config.topology import Priority, of_lane
from penstock.events.envelope import Event, UnknownEvent
from penstock.events.subjects import check_name
from penstock.jobs import derived_ids, lifecycle, registry
from penstock.jobs.errors import NoResult, NotFound, WrongResult
from penstock.jobs.job_log import JobLog
from penstock.jobs.job_type import encode_result
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.payloads import payload
from penstock.jobs.payloads.encryption import KeyRing, about_result, is_sealed
from penstock.jobs.reading.handed_on import HandedOn, HandedOnReader

_NOTHING = encode_result(None)
"""Also the result of a job whose error was ignored, whatever type its function declares."""


async def read(
    log: JobLog, job_id: str, ring: KeyRing, handed_on: HandedOnReader | None = None
) -> JobView:
    """A job as it is now.

    Args:
        log: the events of jobs.
        job_id: of the job.
        ring: keys that open an encrypted result.
        handed_on: looks why a job that could start has not; None not to look.

    Raises:
        NotFound: no event of it is stored (any more).
    """
    events, traceparent = await log.traced_history(check_name("job", job_id))
    record = lifecycle.fold(events)
    if record is None:
        raise NotFound(f"no job of id {job_id!r}; its events may have aged out")
    if record.result_until is not None:
        record = await log.with_result(record)
    waits = await handed_on.read(record) if handed_on else None
    return JobView(
        record=record, events=events, ring=ring, traceparent=traceparent, handed_on=waits
    )


def missing_result(record: JobRecord) -> str:
    """Why a completed job has no result to show; empty if it has."""
    if record.no_result:
        return f"job {record.id}: {record.function} stores no result (store_result=False)"
    if record.result_until is not None and not record.result:
        return (
            f"job {record.id}: its result was stored until {record.result_until:%Y-%m-%d %H:%M:%S} "
            "UTC (result_expires_seconds), or this key may not read it"
        )
    return ""


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is now, with its history.

    Attributes:
        traceparent: W3C header of its dispatch; empty where that was not traced.
        handed_on: why it waits, where a worker got it that cannot run it; None where none did, it
            waits in its queue just now, or this was not looked for (a list asks for its first 100
            that wait).
    """

    record: JobRecord
    events: tuple[tuple[int, Event | UnknownEvent], ...]
    ring: KeyRing = KeyRing()
    traceparent: str = ""
    handed_on: HandedOn | None = None

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"JobView({fields})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        job = self.record
        named = [("id", job.id), ("function", job.function), ("queue", job.queue)]
        state = [("state", job.state.value), ("attempts", job.attempt), ("error", job.error)]
        return [*named, *state, ("events", len(self.events))]

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def function(self) -> str:
        """Registered name; empty where its first events have left the log."""
        return self.record.function

    @property
    def state(self) -> State:
        return self.record.state

    @property
    def queue(self) -> str:
        """Its queue, without the suffix of a priority."""
        return of_lane(self.record.queue)[0]

    @property
    def priority(self) -> Priority:
        return of_lane(self.record.queue)[1]

    @property
    def tags(self) -> tuple[str, ...]:
        return self.record.tags

    @property
    def batch_id(self) -> str:
        """The batch that it is counted in; empty for none."""
        member = derived_ids.member(self.record.id)
        return member.batch if member else ""

    @property
    def worker(self) -> str:
        """That runs it or ran it last; empty before its first attempt."""
        return self.record.worker

    @property
    def timeout_seconds(self) -> float | None:
        """Of each attempt, as dispatched; None where its pool decides, or the call is not known."""
        try:
            return payload.decode(self.record.payload).timeout_seconds or None
        except (msgspec.MsgspecError, ValueError):
            return None

    @property
    def dispatched_at(self) -> datetime:
        return self.record.dispatched_at

    @property
    def reserved_at(self) -> datetime | None:
        """When its worker claimed it for the last attempt, which is when that counts as started.

        A job that was claimed ahead of its turn begins up to ``jobs.claim_ahead_seconds`` later.
        """
        return self.record.started_at

    @property
    def finished_at(self) -> datetime | None:
        return self.record.finished_at

    @property
    def run_seconds(self) -> float | None:
        """Of the last attempt that has ended."""
        return self.record.run_seconds

    @property
    def cpu_seconds(self) -> float:
        """Of the last attempt that has ended; 0 where it was not measured."""
        return self.record.cpu_seconds

    @property
    def peak_memory_bytes(self) -> int:
        """Of the worker's process while the last attempt ran; 0 where it was not measured."""
        return self.record.peak_memory_bytes

    @property
    def trace_id(self) -> str:
        """Of its dispatch and all its attempts, 32 hexadecimal digits; empty if not traced."""
        ids = telemetry.ids(self.traceparent)
        return ids[0] if ids else ""

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
            NoResult: it is not stored, or not any more.
        """
        if self.record.state is State.COMPLETED and (reason := missing_result(self.record)):
            raise NoResult(reason)
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
