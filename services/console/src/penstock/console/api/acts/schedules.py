"""Acts on schedules."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from litestar import Response
from litestar.params import FromPath, JSONBody

from penstock.console.api.acts.receipt import (
    ACCEPTED,
    ApiRequest,
    Receipt,
    Seconds,
    ShortText,
    client_of,
    receipt,
    target,
)
from penstock.console.api.endpoint import Routes
from penstock.console.api.schedules import ScheduleItem, answer, schedule_item, wanted_versions
from penstock.console.parts import Console
from penstock.console.web.acting import act
from penstock.console.web.scopes import Scope
from penstock.events.envelope import utc_now
from penstock.jobs.job_type import NamedJob


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule and the job of each of its ticks.

    Attributes:
        cron: five fields, or six with seconds first.
        missed: of ticks while no orchestrator ran, the latest runs ``once``, or all are skipped.
        expires_seconds: a job not started so long after its tick never is; 0: no limit.
    """

    cron: ShortText
    function: ShortText
    queue: ShortText
    arguments: dict[str, Any] = {}
    zone: ShortText = "UTC"
    missed: Literal["once", "skip"] = "once"
    expires_seconds: Seconds = 0.0


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    @act("PUT", "/schedules/{name:str}", Scope.SCHEDULES, "schedule.put", status_code=ACCEPTED)
    async def put(
        request: ApiRequest, name: FromPath[str], data: JSONBody[NewSchedule]
    ) -> Response[ScheduleItem]:
        """Stores a schedule, from its next tick on; one of the same name is replaced.

        With `If-Match`, the `ETag` of the schedule as it was read, one that was changed since is
        not replaced (412); that it ticked does not count.
        """
        target(request, "schedule", name, cron=data.cron, function=data.function)
        call = NamedJob(data.function, queue=data.queue)(**data.arguments)
        schedules = client_of(console, request).schedules
        stored = await schedules.add(
            name,
            call,
            data.cron,
            zone=data.zone,
            missed=data.missed,
            expires_seconds=data.expires_seconds,
            replace=True,
            if_version=await wanted_versions(schedules, name, request.headers),
        )
        return answer(stored)

    @act(
        "DELETE", "/schedules/{name:str}", Scope.SCHEDULES, "schedule.remove", status_code=ACCEPTED
    )
    async def remove(request: ApiRequest, name: FromPath[str]) -> None:
        """Removes a schedule; jobs that it dispatched go on. `If-Match` as with PUT."""
        target(request, "schedule", name)
        schedules = client_of(console, request).schedules
        versions = await wanted_versions(schedules, name, request.headers)
        await schedules.remove(name, if_version=versions)

    @act("POST", "/schedules/{name:str}/pause", Scope.SCHEDULES, "schedule.pause", status_code=202)
    async def pause(request: ApiRequest, name: FromPath[str]) -> ScheduleItem:
        """No tick is dispatched until the schedule is resumed."""
        target(request, "schedule", name)
        stored = await client_of(console, request).schedules.pause(name)
        return schedule_item(stored, utc_now())

    @act(
        "POST", "/schedules/{name:str}/resume", Scope.SCHEDULES, "schedule.resume", status_code=202
    )
    async def resume(request: ApiRequest, name: FromPath[str]) -> ScheduleItem:
        """Ticks are dispatched again, from the next one on."""
        target(request, "schedule", name)
        stored = await client_of(console, request).schedules.resume(name)
        return schedule_item(stored, utc_now())

    @act("POST", "/schedules/{name:str}/run-now", Scope.SCHEDULES, "schedule.run", status_code=202)
    async def run_now(request: ApiRequest, name: FromPath[str]) -> Receipt:
        """Dispatches the job of a schedule once, besides its ticks."""
        target(request, "schedule", name)
        job_id = await client_of(console, request).schedules.run_now(name)
        target(request, "schedule", name, job=job_id)
        return await receipt(console, "job", job_id)

    return put, remove, pause, resume, run_now
