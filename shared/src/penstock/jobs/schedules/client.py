"""The verbs of schedules: kept by the broker, dispatched by the orchestrator."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable

import msgspec

from penstock.bus.protocol import Bus, Expect, Outgoing, Stored, WrongSequence, broker_time
from penstock.events.envelope import check_instant
from penstock.events.subjects import Subjects, check_name
from penstock.jobs.dispatch.job_factory import Maker, Terms
from penstock.jobs.dispatch.sender import Sender
from penstock.jobs.errors import BadSchedule, JobRefused, NotFound
from penstock.jobs.registry import Call
from penstock.jobs.schedules.schedule import (
    Missed,
    Schedule,
    check,
    dispatched,
    job_prefix,
    next_tick,
)

log = logging.getLogger("penstock.jobs")

MOST = 10_000
_TRIES = 20


class Schedules:
    """Adds, shows, pauses, resumes, runs and removes schedules."""

    def __init__(self, bus: Bus, subjects: Subjects, maker: Maker, sender: Sender) -> None:
        self._bus, self._subjects, self._maker, self._sender = bus, subjects, maker, sender

    async def add(
        self,
        name: str,
        call: Call,
        cron: str,
        *,
        zone: str = "UTC",
        terms: Terms | None = None,
        missed: Missed = "once",
        expires_seconds: float = 0.0,
        replace: bool = False,
    ) -> Schedule:
        """A new schedule, from its next tick on.

        Args:
            cron: five fields, or six with seconds first. terms: queue, tags and priority.
            missed: what becomes of ticks that no orchestrator was there for: the latest runs
                ``once``, or all are skipped (``skip``).
            expires_seconds: a job not started so long after its tick never is; 0: no limit.
            replace: one of the same name is replaced; its ticks begin anew.

        Raises:
            BadSchedule: a cron expression or zone that cannot be, or that never comes.
            JobRefused: one of that name exists.
        """
        check_name("schedule", name)
        check(cron, zone)
        generation = uuid.uuid4().hex[:20]
        template = msgspec.structs.replace(terms or Terms(), template=job_prefix(generation))
        event, now = self._maker.event(call, template), broker_time(self._bus)
        made = Schedule(
            name=name,
            cron=cron,
            zone=zone,
            queue=event.queue,
            function=event.function,
            payload=event.payload,
            tags=event.tags,
            tries=event.tries,
            missed=missed,
            expires_seconds=expires_seconds,
            generation=generation,
            made_at=now,
            done_until=now,
        )
        if next_tick(made, now) is None:
            raise BadSchedule(f"{cron!r} never comes")
        for _ in range(_TRIES):
            stored = await self._last(name)
            record = _readable(stored)
            if record and not record.removed and not replace:
                raise JobRefused(f"a schedule {name!r} exists; remove or replace it (--replace)")
            if await self._put(made, stored.sequence if stored else 0):
                return made
        raise _too_quick(name)

    async def all(self) -> list[Schedule]:
        """Every schedule, by name; a record that cannot be read is logged and left out."""
        subject = self._subjects.state("schedule", "*")
        stored = await self._bus.history(self._subjects.state_stream, subject, MOST)
        records = [record for message in stored if (record := _readable(message))]
        return sorted((one for one in records if not one.removed), key=lambda one: one.name)

    async def get(self, name: str) -> Schedule:
        """Raises NotFound."""
        record = _readable(await self._last(check_name("schedule", name)))
        if record is None or record.removed:
            raise _not_there(name)
        return record

    async def pause(self, name: str) -> Schedule:
        """No tick is dispatched until it is resumed; those of the meantime are not missed."""
        return await self._change(name, lambda one: msgspec.structs.replace(one, paused=True))

    async def resume(self, name: str) -> Schedule:
        """From the next tick on."""
        return await self._change(
            name,
            lambda one: msgspec.structs.replace(
                one, paused=False, done_until=broker_time(self._bus)
            ),
        )

    async def run_now(self, name: str) -> str:
        """Dispatches the job once, besides its ticks, paused or not; returns the job's id."""
        schedule, now = await self.get(name), broker_time(self._bus)
        job_id = f"{job_prefix(schedule.generation)}-{uuid.uuid4().hex}"
        event = dispatched(schedule, now, self._maker.source, now, job_id)
        await self._sender.send(event)
        return job_id

    async def remove(self, name: str) -> None:
        """Jobs that were dispatched stay. A record that cannot be read is removed, too."""
        stored = await self._last(check_name("schedule", name))
        if stored is None or _readable(stored):
            await self._change(name, lambda one: msgspec.structs.replace(one, removed=True))
        await self._bus.remove(self._subjects.state_stream, self._subjects.state("schedule", name))

    # --- the record -------------------------------------------------------------------------------
    async def _change(self, name: str, change: Callable[[Schedule], Schedule]) -> Schedule:
        for _ in range(_TRIES):
            stored = await self._last(check_name("schedule", name))
            record = _readable(stored)
            if stored is None or record is None or record.removed:
                raise _not_there(name)
            if await self._put(changed := change(record), stored.sequence):
                return changed
        raise _too_quick(name)

    async def _last(self, name: str) -> Stored | None:
        return await self._bus.last(
            self._subjects.state_stream, self._subjects.state("schedule", name)
        )

    async def _put(self, schedule: Schedule, expected: int) -> bool:
        return await put(self._bus, self._subjects, schedule, expected) > 0


async def put(bus: Bus, subjects: Subjects, schedule: Schedule, expected: int) -> int:
    """Stores a record in place of that of sequence ``expected``; 0 when another was in the way."""
    subject = subjects.state("schedule", schedule.name)
    message = Outgoing(subject, msgspec.json.encode(schedule), expect=Expect(expected))
    try:
        return await bus.append(message)
    except WrongSequence:
        return 0


def read(stored: Stored) -> Schedule:
    """The record of a message.

    Raises:
        ValueError, RecursionError: it is none, or that of another name.
    """
    record = msgspec.json.decode(stored.body, type=Schedule)
    if record.name != (name := stored.subject.rpartition(".")[2]):
        raise ValueError(f"the record of schedule {name!r} names {record.name!r}")
    for field in ("made_at", "done_until", "firing", "last_tick"):
        check_instant(field, getattr(record, field))
    return record


def _readable(stored: Stored | None) -> Schedule | None:
    """The record of a message; None, and a line in the log, where it is none."""
    try:
        return read(stored) if stored else None
    except (ValueError, RecursionError) as error:
        log.error("%s is no record of a schedule: %s", stored and stored.subject, error)
        return None


def _not_there(name: str) -> NotFound:
    return NotFound(f"no schedule {name!r}; 'penstock schedule ls' lists them")


def _too_quick(name: str) -> JobRefused:
    return JobRefused(f"schedule {name} changes too quickly; try again")
