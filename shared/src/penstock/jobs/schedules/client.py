"""Schedules: stored by the broker, changed here, dispatched by the orchestrator."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from penstock.bus import records
from penstock.bus.protocol import Bus, Expect, Outgoing, Stored, WrongSequence, broker_time
from penstock.events.envelope import check_instant
from penstock.events.subjects import Subjects, check_name
from penstock.jobs import registry
from penstock.jobs.dispatch.dispatcher import Dispatcher
from penstock.jobs.dispatch.job_factory import Terms
from penstock.jobs.errors import BadSchedule, Changed, JobRefused, MissingKey, NotFound
from penstock.jobs.event_store.compare_and_set import compare_and_set
from penstock.jobs.job_type import Call
from penstock.jobs.schedules.declaration import Declaration
from penstock.jobs.schedules.drift import Difference, Drift, compare, undeclared
from penstock.jobs.schedules.schedule import (
    Missed,
    Schedule,
    check,
    dispatched,
    job_prefix,
    mark_of_removal,
    next_tick,
)

log = logging.getLogger("penstock.jobs")

_FIRING_PAUSE_SECONDS = 0.2
_RUN_NOW_DIGITS = 24
"""A workflow's id leaves room for that of its steps."""


class Schedules:
    """Adds, reads, pauses, resumes, runs and removes schedules; reached as ``client.schedules``.

    Args:
        bus: a connected bus.
        subjects: names of streams and subjects.
        dispatcher: encodes the calls, and sends the jobs of :meth:`run_now`.
    """

    def __init__(self, bus: Bus, subjects: Subjects, dispatcher: Dispatcher) -> None:
        self._bus, self._subjects, self._dispatcher = bus, subjects, dispatcher

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
        if_version: Collection[str] | None = None,
    ) -> Schedule:
        """Stores a new schedule, from its next tick on.

        Args:
            name: of the schedule.
            call: what runs at each tick.
            cron: five fields, or six with seconds first.
            zone: a name of the time zone database.
            terms: queue, tags and priority.
            missed: of ticks while no orchestrator ran, the latest runs ``once``, or all are skipped
                (``skip``).
            expires_seconds: a job not started so long after its tick never is; 0: no limit.
            replace: a schedule of the same name is replaced; its ticks begin anew.
            if_version: only a schedule of one of these versions is replaced
                (:attr:`Schedule.version`); None: any.

        Raises:
            BadSchedule: an invalid cron expression or zone, or one without a future tick.
            Changed: it has another version, or is not there.
            JobRefused: a schedule of that name exists.
        """
        schedule = self._made(name, call, cron, zone, terms or Terms(), missed, expires_seconds)

        async def change(stored: Stored | None) -> Schedule | None:
            record = _readable(stored)
            _check_version(name, record, if_version)
            if record and not record.removed and not replace:
                raise JobRefused(
                    f"a schedule {name!r} exists; remove it, or replace it with "
                    "replace=True or --replace"
                )
            return await self._put(schedule, stored)

        return await compare_and_set(lambda: self._last(name), change, f"schedule {name}")

    async def all(self) -> list[Schedule]:
        """Every schedule, by name; a record that cannot be read is logged and left out."""
        subject = self._subjects.state("schedule", "*")
        stored = await records.read_all(self._bus, self._subjects.state_stream, subject)
        schedules = [record for message in stored if (record := _readable(message))]
        living = (record for record in schedules if not record.removed)
        return sorted(living, key=lambda record: record.name)

    async def get(self, name: str) -> Schedule:
        """The schedule of that name. Raises NotFound."""
        record = _readable(await self._last(check_name("schedule", name)))
        if record is None or record.removed:
            raise _not_found(name)
        return record

    async def pause(self, name: str) -> Schedule:
        """No tick is dispatched until it is resumed; the ticks in between are dropped."""
        return await self._change(name, paused=True)

    async def resume(self, name: str) -> Schedule:
        """Ticks are dispatched again, from the next one on."""
        return await self._change(name, paused=False, done_until=broker_time(self._bus))

    async def run_now(self, name: str) -> str:
        """Dispatches the job once, besides its ticks, paused or not; returns the job's id."""
        schedule, now = await self.get(name), broker_time(self._bus)
        job_id = f"{job_prefix(schedule.generation)}-{uuid.uuid4().hex[:_RUN_NOW_DIGITS]}"
        event = dispatched(schedule, now, self._dispatcher.source, now, job_id)
        await self._dispatcher.sender.send(event)
        return job_id

    async def compare(self, declarations: Sequence[Declaration]) -> list[Difference]:
        """How the stored schedules differ from the declared ones; those of clients are left out.

        Args:
            declarations: all that are declared; see
                :func:`penstock.jobs.schedules.declaration.declared`.

        Raises:
            BadSchedule: names a declaration whose job cannot be dispatched.
        """
        wanted = [self._declared(declaration) for declaration in declarations]
        stored = {schedule.name: schedule for schedule in await self.all()}
        differences = [compare(schedule, stored.get(schedule.name)) for schedule in wanted]
        names = {schedule.name for schedule in wanted}
        return differences + [
            undeclared(schedule)
            for name, schedule in stored.items()
            if schedule.origin and name not in names
        ]

    async def sync(
        self, declarations: Sequence[Declaration], *, prune: bool = False
    ) -> list[Difference]:
        """Stores what is declared, and changes what was stored by an earlier declaration.

        A pause and the count of jobs are kept. Any number of processes may do this at once.

        Args:
            declarations: as of :meth:`compare`.
            prune: removes what is not declared any more.

        Returns:
            What differed before, and whether it is as declared now.

        Raises:
            BadSchedule: as :meth:`compare` does, before anything is stored.
            JobRefused: a schedule changes too quickly.
        """
        by_name = {declaration.name: self._declared(declaration) for declaration in declarations}
        outcomes = []
        for difference in await self.compare(declarations):
            if difference.drift in (Drift.MISSING, Drift.CHANGED):
                outcomes.append(await self._store(by_name[difference.name]))
            elif difference.drift is Drift.UNDECLARED and prune:
                await self.remove(difference.name)
                outcomes.append(msgspec.structs.replace(difference, done=True))
            else:
                outcomes.append(difference)
        return outcomes

    async def remove(self, name: str, *, if_version: Collection[str] | None = None) -> None:
        """Removes the schedule, not its jobs; also where its record cannot be read.

        Args:
            name: of the schedule.
            if_version: only one of these versions is removed; None: any.

        Raises:
            NotFound: there is none.
            Changed: it has another version.
        """
        check_name("schedule", name)

        async def change(stored: Stored | None) -> Schedule | None:
            record = _readable(stored)
            if stored is None or (record is not None and record.removed):
                raise _not_found(name)
            _check_version(name, record, if_version)
            return await self._put(mark_of_removal(name, broker_time(self._bus)), stored)

        # The mark stays: see `penstock.bus.records`. It is a record, which orchestrators of earlier
        # versions read, too.
        await compare_and_set(lambda: self._last(name), change, f"schedule {name}")

    # --- declared schedules -----------------------------------------------------------------------
    def _declared(self, declaration: Declaration) -> Schedule:
        """The record that a declaration makes. Raises BadSchedule, which names it."""
        try:
            made = self._made(
                declaration.name,
                registry.find(declaration.job)(**declaration.arguments),
                declaration.cron,
                declaration.zone,
                Terms(
                    queue=declaration.queue, tags=declaration.tags, priority=declaration.priority
                ),
                declaration.missed,
                declaration.expires_seconds,
            )
        except (JobRefused, MissingKey, ValueError) as error:
            raise BadSchedule(f"schedule {declaration.name!r}: {error}") from error
        return msgspec.structs.replace(
            made,
            origin=declaration.origin,
            declaration=declaration.fingerprint,
            taken_over=0,
        )

    async def _store(self, wanted: Schedule) -> Difference:
        async def change(message: Stored | None) -> Difference | None:
            stored = _readable(message)
            difference = compare(wanted, stored)
            if difference.drift in (Drift.EQUAL, Drift.CONFLICT):
                return difference  # another process was first
            record = wanted
            if stored and not stored.removed:
                if stored.firing:  # this tick becomes a job first, by the declaration before
                    await asyncio.sleep(_FIRING_PAUSE_SECONDS)
                    return None
                record = msgspec.structs.replace(
                    wanted,
                    paused=stored.paused,
                    last_tick=stored.last_tick,
                    dispatched=stored.dispatched,
                    taken_over=stored.dispatched,
                )
            if not await self._put(record, message):
                return None
            return msgspec.structs.replace(difference, done=True)

        return await compare_and_set(
            lambda: self._last(wanted.name), change, f"schedule {wanted.name}"
        )

    # --- the record -------------------------------------------------------------------------------
    def _made(
        self,
        name: str,
        call: Call,
        cron: str,
        zone: str,
        terms: Terms,
        missed: Missed,
        expires_seconds: float,
    ) -> Schedule:
        """A new record. Raises BadName, BadSchedule, JobRefused, MissingKey."""
        check_name("schedule", name)
        check(cron, zone)
        generation = uuid.uuid4().hex[:20]
        template = msgspec.structs.replace(terms, template=job_prefix(generation))
        event, now = self._dispatcher.factory.event(call, template), broker_time(self._bus)
        schedule = Schedule(
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
        if next_tick(schedule, now) is None:
            raise BadSchedule(f"{cron!r} never comes")
        return schedule

    async def _change(self, name: str, **fields: Any) -> Schedule:
        check_name("schedule", name)

        async def change(stored: Stored | None) -> Schedule | None:
            record = _readable(stored)
            if record is None or record.removed:
                raise _not_found(name)
            return await self._put(msgspec.structs.replace(record, **fields), stored)

        return await compare_and_set(lambda: self._last(name), change, f"schedule {name}")

    async def _last(self, name: str) -> Stored | None:
        return await self._bus.last(
            self._subjects.state_stream, self._subjects.state("schedule", name)
        )

    async def _put(self, schedule: Schedule, stored: Stored | None) -> Schedule | None:
        """Replaces the stored record; None when another writer was first."""
        expected = stored.sequence if stored else 0
        return schedule if await put(self._bus, self._subjects, schedule, expected) else None


async def put(bus: Bus, subjects: Subjects, schedule: Schedule, expected: int) -> int:
    """Stores a record in place of that of sequence ``expected``.

    Returns:
        Its sequence; 0 when another writer was first.
    """
    subject = subjects.state("schedule", schedule.name)
    message = Outgoing(subject, msgspec.json.encode(schedule), expect=Expect(expected))
    try:
        return await bus.append(message)
    except WrongSequence:
        return 0


def read(stored: Stored) -> Schedule:
    """The record of a message.

    Raises:
        ValueError, RecursionError: it is no record, or that of another name.
    """
    record = msgspec.json.decode(stored.body, type=Schedule)
    if record.name != (name := stored.subject.rpartition(".")[2]):
        raise ValueError(f"the record of schedule {name!r} names {record.name!r}")
    for field in ("made_at", "done_until", "firing", "last_tick"):
        check_instant(field, getattr(record, field))
    return record


def _readable(stored: Stored | None) -> Schedule | None:
    """The record of a message; None, and a line in the log, where it cannot be read."""
    try:
        return read(stored) if stored else None
    except (ValueError, RecursionError) as error:
        log.error("%s is no record of a schedule: %s", stored and stored.subject, error)
        return None


def _check_version(name: str, record: Schedule | None, wanted: Collection[str] | None) -> None:
    current = record.version if record and not record.removed else "none"
    if wanted is not None and current not in wanted:
        raise Changed(
            f"schedule {name!r} was changed since: its version is {current}, expected "
            f"{' or '.join(wanted)[:80]}; read it again"
        )


def _not_found(name: str) -> NotFound:
    return NotFound(f"no schedule {name!r}; 'penstock schedule ls' lists them")
