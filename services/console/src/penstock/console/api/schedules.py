"""Schedules: jobs that are dispatched at set times."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from datetime import datetime

import msgspec
from litestar import Response
from litestar.datastructures import Headers
from litestar.params import FromPath

from penstock.console.api.endpoint import Listing, Routes, read, whole
from penstock.console.parts import Console
from penstock.console.web.entity_tags import tag, wanted_tags
from penstock.events.envelope import utc_now
from penstock.jobs.errors import Changed, NotFound
from penstock.jobs.schedules.client import Schedules
from penstock.jobs.schedules.schedule import Schedule, next_tick

SHOWN_TICKS = 20
_TAG_LENGTH = 16


class ScheduleItem(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, without the arguments of its job.

    Attributes:
        origin: where it is declared, ``code`` or ``settings``; empty: added by a client.
        dispatched: ticks that became jobs.
        next_tick: None where it is paused, or there is none in 50 years.
    """

    name: str
    cron: str
    zone: str
    queue: str
    function: str
    tags: tuple[str, ...]
    missed: str
    is_paused: bool
    origin: str
    dispatched: int
    last_tick: datetime | None
    next_tick: datetime | None


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """A time at which a job is dispatched."""

    at: datetime


def schedule_item(schedule: Schedule, now: datetime) -> ScheduleItem:
    """A record as it is sent."""
    others = ("is_paused", "next_tick")
    copied = (name for name in ScheduleItem.__struct_fields__ if name not in others)
    return ScheduleItem(
        is_paused=schedule.paused,
        next_tick=None if schedule.paused else next_tick(schedule, now),
        **{name: getattr(schedule, name) for name in copied},
    )


def answer(schedule: Schedule) -> Response[ScheduleItem]:
    """A record as it is sent, with its entity tag, for ``If-Match``."""
    item = schedule_item(schedule, utc_now())
    digest = hashlib.sha256(msgspec.json.encode(item)).hexdigest()[:_TAG_LENGTH]
    return Response(item, headers={"etag": tag(f"{schedule.version}.{digest}")})


async def wanted_versions(
    schedules: Schedules, name: str, headers: Headers
) -> Collection[str] | None:
    """The versions of which one is to be changed, by the request; None: any, or a new one.

    The part of a tag that changes with each tick does not count.

    Raises:
        Changed: one is to be changed, and there is none.
    """
    wanted = wanted_tags(headers)
    if "*" not in wanted:
        return [one.strip('"').partition(".")[0] for one in wanted] if wanted else None
    try:
        return [(await schedules.get(name)).version]
    except NotFound as error:
        raise Changed(str(error)) from None


def ticks(schedule: Schedule, now: datetime) -> list[Tick]:
    """The following times of a schedule, as if it were not paused."""
    following: list[Tick] = []
    after: datetime | None = now
    while len(following) < SHOWN_TICKS and (after := next_tick(schedule, after or now)):
        following.append(Tick(at=after))
    return following


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    @read("/schedules")
    async def schedules() -> Listing[ScheduleItem]:
        """All schedules, by name."""
        now = utc_now()
        stored = await console.client.schedules.all()
        return whole(console, [schedule_item(one, now) for one in stored])

    @read("/schedules/{name:str}")
    async def schedule(name: FromPath[str]) -> Response[ScheduleItem]:
        """One schedule; its `ETag` is for `If-Match` on PUT and DELETE."""
        return answer(await console.client.schedules.get(name))

    @read("/schedules/{name:str}/ticks")
    async def schedule_ticks(name: FromPath[str]) -> Listing[Tick]:
        """The next 20 times; jobs of past ones are found by the tag `schedule:NAME`."""
        return whole(console, ticks(await console.client.schedules.get(name), utc_now()))

    return schedules, schedule, schedule_ticks
