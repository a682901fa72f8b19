"""Schedules that the settings declare: added, kept up to date, and removed with the settings."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from hashlib import blake2b

from penstock.bus.protocol import BusError
from penstock.jobs import pipeline
from penstock.jobs.client import Client
from penstock.jobs.dispatch.job_factory import Terms
from penstock.jobs.errors import BadSchedule, JobRefused, MissingKey, NotFound
from penstock.jobs.job_type import Call
from penstock.jobs.schedules.client import Schedules
from penstock.runtime.service import Service

log = logging.getLogger("penstock.orchestrator")

_MARK = "settings:"
"""What the tag of such a schedule begins with; behind it stands what it was made of."""
_EXPIRES_SECONDS = 900.0
"""A tick that waited so long behind others is skipped."""
_RETRY_SECONDS = 2.0


async def keep(running: Service, client: Client) -> None:
    """Once the broker answers; settings change with a restart."""
    wanted = running.settings.pipeline
    while True:
        try:
            await agree(client.schedules, pipeline.by_clock(wanted), wanted.zone)
            return
        except (BadSchedule, MissingKey) as error:
            log.error("the schedules of the settings are refused: %s", error)
            return
        except (
            BusError,
            JobRefused,
            NotFound,
        ) as error:  # or another orchestrator changed it at the same time
            log.warning("the schedules of the settings cannot be stored now: %s", error)
        if not await running.pause(_RETRY_SECONDS):
            return


async def agree(schedules: Schedules, wanted: Mapping[str, tuple[str, Call]], zone: str) -> None:
    """Adds what is missing or was made of other settings; removes what is not declared any more.

    A schedule of that name that a client made is left alone, as is one that is paused.
    """
    there = {one.name: one.tags for one in await schedules.all()}
    for name, (cron, call) in wanted.items():
        mark = _mark(cron, zone, call)
        if name not in there or (_is_declared(there[name]) and mark not in there[name]):
            await schedules.add(
                name,
                call,
                cron,
                zone=zone,
                terms=Terms(tags=(mark,)),
                expires_seconds=_EXPIRES_SECONDS,
                replace=True,
            )
            log.info("schedule %s: %s", name, cron)
        elif not _is_declared(there[name]):
            log.warning(
                "schedule %s of a client has the name of one of the settings: remove one of them",
                name,
            )
    for name in there.keys() - wanted.keys():
        if _is_declared(there[name]):
            await schedules.remove(name)
            log.info("schedule %s is removed: the settings do not declare it any more", name)


def _is_declared(tags: tuple[str, ...]) -> bool:
    return any(tag.startswith(_MARK) for tag in tags)


def _mark(cron: str, zone: str, call: Call) -> str:
    made_of = "\n".join((cron, zone, call.job.name)).encode() + call.arguments
    return _MARK + blake2b(made_of, digest_size=8).hexdigest()
