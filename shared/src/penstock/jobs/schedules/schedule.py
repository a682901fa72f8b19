"""A schedule: a job dispatched at each tick of a cron expression. Pure.

A tick becomes a job in three steps. First the record is marked as ``firing``, by compare-and-set;
then the job is dispatched, under an id that follows from the tick; then the mark is removed. An
orchestrator that finds a marked record dispatches the job: however many do, one job exists.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Literal
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from penstock.events.brief import brief, brief_fields
from penstock.events.envelope import Instant
from penstock.events.job import JobDispatched
from penstock.jobs.errors import BadSchedule
from penstock.jobs.middleware import token
from penstock.jobs.payloads import payload
from penstock.jobs.registry import with_automatic

Missed = Literal["once", "skip"]
_LATE_SECONDS = 30.0
"""A tick this late was missed."""
_ONCE_A_YEAR = "0 0 1 1 *"
"""Of a removed schedule, whose record must name some time."""
_LOOKS_BACK = tuple(timedelta(minutes=m) for m in (2, 60, 2880, 100_000, 30_000_000))


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of a schedule, as the broker stores it.

    Attributes:
        name: of the schedule.
        cron: five fields, or six with seconds first.
        zone: a name of the time zone database.
        payload: the encoded call, without an id.
        missed: of ticks while no orchestrator ran, the latest runs ``once``, or all are skipped.
        expires_seconds: a tick's job is not started later than this after it; 0: at any time.
        generation: another for each schedule that ever had this name.
        done_until: ticks up to then are done.
        firing: a tick whose job must exist.
        last_tick: the latest that was dispatched.
        dispatched: how many were.
        removed: the mark that stays in the place of a removed schedule.
        origin: where it is declared, ``code`` or ``settings``; empty: added by a client.
        declaration: fingerprint of the declaration that it was made of.
        taken_over: of ``dispatched``, those of generations before, which a changed declaration
            keeps; None: not known, as an earlier version of Penstock stored the record.
    """

    name: str
    cron: str
    zone: str = "UTC"
    queue: str
    function: str
    payload: bytes
    tags: tuple[str, ...] = ()
    tries: int = 0
    missed: Missed = "once"
    expires_seconds: float = 0.0
    paused: bool = False
    generation: str
    made_at: Instant
    done_until: Instant
    firing: Instant | None = None
    last_tick: Instant | None = None
    dispatched: int = 0
    removed: bool = False
    origin: str = ""
    declaration: str = ""
    taken_over: int | None = None

    __repr__ = brief
    __rich_repr__ = brief_fields

    @property
    def version(self) -> str:
        """Of what people decide about it; a tick changes the record, not the version."""
        return f"{self.generation}-{'paused' if self.paused else 'active'}"


def mark_of_removal(name: str, now: datetime) -> Schedule:
    """The small record in the place of a removed schedule, without anything of its job."""
    return Schedule(
        name=name,
        cron=_ONCE_A_YEAR,
        queue="",
        function="",
        payload=b"",
        generation="",
        made_at=now,
        done_until=now,
        removed=True,
    )


def next_tick(schedule: Schedule, after: datetime) -> datetime | None:
    """The first tick after a time; None where there is none in 50 years.

    Clock changes are handled as Debian's cron does: a time that is skipped in spring comes right
    after the change, one that comes twice in autumn counts once, if it is not one of many an hour.

    Raises:
        BadSchedule
    """
    tick = next(_ticks(schedule.cron, schedule.zone, after), None)
    return tick.astimezone(UTC) if tick else None


def check(cron: str, zone: str) -> str:
    """The expression in words. Raises BadSchedule."""
    return _ticks(cron, zone, datetime.now(UTC)).explain()


def _ticks(cron: str, zone: str, after: datetime) -> CronSim:
    try:
        zone_info = ZoneInfo(zone)
    except (ValueError, KeyError, OSError) as error:
        raise BadSchedule(
            f"no time zone {zone[:80]!r} is known here; use a name such as 'Europe/Berlin'"
        ) from error
    try:
        return CronSim(cron, after.astimezone(zone_info))
    except CronSimError as error:
        raise BadSchedule(
            f"{cron[:80]!r} is no cron expression ({error}); "
            "e.g. '30 6 * * MON-FRI' is 6:30 on working days"
        ) from error


def step(schedule: Schedule, now: datetime) -> Schedule | None:
    """The record once the next due tick is handled; None when no tick is due.

    Ticks of the last half minute come one after another; of older ones the latest stands for all.
    """
    if schedule.paused or schedule.removed or schedule.firing:
        return None
    first = next_tick(schedule, schedule.done_until)
    if first is None or first > now:
        return None
    missed = now - timedelta(seconds=_LATE_SECONDS)
    tick = first if first >= missed else _latest(schedule, first, now)
    fires = schedule.missed == "once" or tick >= missed
    return msgspec.structs.replace(schedule, done_until=tick, firing=tick if fires else None)


def _latest(schedule: Schedule, first: datetime, now: datetime) -> datetime:
    """The last tick until ``now``, searched ever further back; ``first`` is one."""
    for back in _LOOKS_BACK:
        since = max(now - back, first)
        ticks = _ticks(schedule.cron, schedule.zone, since)
        if due := list(takewhile(lambda tick: tick <= now, ticks)):
            return due[-1].astimezone(UTC)
    return first


def fired(schedule: Schedule) -> Schedule:
    """The record once the job of its firing tick exists."""
    return msgspec.structs.replace(
        schedule, firing=None, last_tick=schedule.firing, dispatched=schedule.dispatched + 1
    )


def job_prefix(generation: str) -> str:
    """What the ids of a schedule's jobs begin with; its sealed arguments open for no others."""
    return f"s-{generation}"


def dispatched(
    schedule: Schedule, tick: datetime, source: str, now: datetime, job_id: str = ""
) -> JobDispatched:
    """The first event of a tick's job; the same ids each time.

    Args:
        job_id: of a job besides the ticks.
    """
    job_id = job_id or f"{job_prefix(schedule.generation)}-{int(tick.timestamp())}"
    expires = timedelta(seconds=schedule.expires_seconds) if schedule.expires_seconds else None
    call = payload.decode(schedule.payload)
    call = msgspec.structs.replace(
        call,
        id=job_id,
        dispatched_at=now.timestamp(),
        expires_at=(tick + expires).timestamp() if expires else payload.UNLIMITED,
    )
    return JobDispatched(
        id=token("tick", job_id),
        job_id=job_id,
        source=source,
        at=now,
        queue=schedule.queue,
        function=schedule.function,
        payload=payload.encode(call),
        tags=with_automatic(schedule.tags, (f"schedule:{schedule.name}",)),
        tries=schedule.tries,
        expires_at=tick + expires if expires else None,
        kind=call.kind,
        version=call.version,
    )
