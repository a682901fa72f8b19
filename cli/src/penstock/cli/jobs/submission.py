"""Submits a job from the shell, also while the broker is away, as `dispatch.when_away` says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from penstock.bus.protocol import Bus
from penstock.cli.errors import Failed, Refused
from penstock.cli.output import note
from penstock.config import Settings
from penstock.events.subjects import Subjects
from penstock.jobs.client import Client
from penstock.jobs.dispatch.sender import Sender
from penstock.jobs.job_type import Call
from penstock.jobs.job_view import JobView
from penstock.jobs.outbox.offline import OfflineSender


class Submitted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A submitted job.

    Attributes:
        outbox: the file in which the job waits for the broker; empty: the broker keeps the job.
        waiting: jobs that wait in this file, this one included.
    """

    id: str
    outbox: str = ""
    waiting: int = 0


def may_be_away(settings: Settings) -> bool:
    """Whether a job is accepted without a broker."""
    return settings.dispatch.when_away == "outbox"


def where_it_waits(job: Submitted) -> str:
    """The message about a job in the outbox."""
    return (
        f"the broker has not taken job {job.id} yet: it is in the outbox {job.outbox}, where "
        f"{job.waiting} {'job waits' if job.waiting == 1 else 'jobs wait'}; the next program that "
        "opens this outbox sends them, or 'penstock outbox flush'"
    )


@asynccontextmanager
async def submitter(bus: Bus, settings: Settings) -> AsyncIterator[Submitter]:
    """One over this bus, closed at the end. Raises Refused: the outbox cannot be used."""
    when_away = OfflineSender(Sender(bus, Subjects(settings.prefix)), settings.dispatch)
    try:
        await when_away.open()
    except OSError as error:
        raise Refused(str(error)) from error
    try:
        yield Submitter(Client.over(bus, settings, "cli", when_away), when_away)
    finally:
        await when_away.close(quietly=True)


class Submitter:
    """Submits a job, and reports whether the broker or the outbox keeps it."""

    def __init__(self, client: Client, when_away: OfflineSender) -> None:
        self._client, self._when_away = client, when_away

    async def submit(self, call: Call, terms: Mapping[str, Any]) -> str:
        """Returns the job's id. Raises as :meth:`penstock.jobs.client.Client.dispatch`."""
        return await self._client.dispatch(call, **terms)

    async def result(self, job_id: str) -> Submitted:
        """Where the job is, after what waits was tried for ``dispatch.outbox_close_seconds``.

        Raises:
            Failed: the broker refused the job.
        """
        await self._when_away.flush()
        return await self._place(job_id)

    async def wait(self, job_id: str, timeout: float | None) -> JobView:
        """The job when it has ended. Raises Failed: it has not, or the broker refused it."""
        try:
            async with asyncio.timeout(timeout):
                if (place := await self._place(job_id)).outbox:
                    note(where_it_waits(place))
                    await self._when_away.sent()
                    await self._place(job_id)
                return await self._client.wait(job_id)
        except TimeoutError:
            place = await self._place(job_id)
            text = where_it_waits(place) if place.outbox else f"see 'penstock job show {job_id}'"
            raise Failed(f"job {job_id} has not ended after {timeout:g} s; {text}") from None

    async def _place(self, job_id: str) -> Submitted:
        entry = await self._when_away.entry(job_id)
        if entry is None:
            return Submitted(id=job_id)
        path = self._when_away.path
        if entry.refused:
            raise Failed(
                f"the broker refused job {job_id}: {entry.refused}; it stays in the outbox {path}, "
                "see 'penstock outbox ls'"
            )
        return Submitted(id=job_id, outbox=path, waiting=await self._when_away.count())
