"""A job as it is shown: its record, its events, and its result decoded."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.events.envelope import Event, UnknownEvent
from penstock.jobs import registry
from penstock.jobs.errors import WrongResult
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.payloads.encryption import KeyRing, about_result, is_sealed

_NOTHING = registry.encode_result(None)
"""The result of a job whose error was forgiven, too, whatever type its function gives."""


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is now, with its story."""

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
        kind = registry.REGISTRY.get(self.record.function)
        if kind is None:
            return msgspec.msgpack.decode(raw)
        try:
            return kind.decode_result(raw)
        except WrongResult as error:
            raise WrongResult(f"job {self.record.id}: {error}") from error
