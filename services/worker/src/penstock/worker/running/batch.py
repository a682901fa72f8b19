"""The batch that a running job belongs to, as the job sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from penstock.jobs import derived_ids
from penstock.jobs.client import Client
from penstock.jobs.errors import Cancelled
from penstock.jobs.job_type import Call
from penstock.worker.claiming.claimed_job import ClaimedJob

_ADD_SECONDS = 300.0


class RunBatch:
    """See :class:`penstock.jobs.running.context.JobBatch`.

    Made anew for each attempt, so that one that runs the job again names the same jobs.
    """

    def __init__(self, job: ClaimedJob, loop: asyncio.AbstractEventLoop, client: Client) -> None:
        self._job, self._loop, self._client = job, loop, client
        self._added = 0

    @staticmethod
    def of(job: ClaimedJob, loop: asyncio.AbstractEventLoop, client: Client) -> RunBatch | None:
        return RunBatch(job, loop, client) if derived_ids.member(job.id) else None

    @property
    def id(self) -> str:
        place = derived_ids.member(self._job.id)
        return place.batch if place else ""

    def add(self, calls: Iterable[Call]) -> list[str]:
        if self._job.lost:
            raise Cancelled
        work = self._client.batches.add_from(self._job.id, calls, self._added)
        ids = asyncio.run_coroutine_threadsafe(work, self._loop).result(_ADD_SECONDS)
        self._added += len(ids)
        return ids
