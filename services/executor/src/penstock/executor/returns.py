"""Giving back what dead workers held, so that it runs elsewhere at once."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence

from penstock.bus.protocol import Bus, BusError
from penstock.executor.recovery import Recovery

log = logging.getLogger("penstock.executor")

ACK_SUBJECT = re.compile(r"\$JS\.ACK\.[^\s*>]+")
"""Reports come on a plain subject: nothing else may be published to by what they say."""


class Returns:
    """Sends what is given back beside other work; lost ones return when their claim lapses."""

    def __init__(self, bus: Bus, recovery: Recovery) -> None:
        self._bus, self._recovery = bus, recovery
        self._tasks: set[asyncio.Task[None]] = set()

    def give_back(
        self,
        ack_subjects: Sequence[str],
        worker: str = "",
        job_ids: Sequence[str] = (),
        why: str = "",
    ) -> None:
        """Returns messages to their queues; with ``why`` the jobs' events say so first."""
        subjects = [subject for subject in ack_subjects if ACK_SUBJECT.fullmatch(subject)]
        if len(subjects) < len(ack_subjects):
            log.warning("a worker reported claims that are none: %r", ack_subjects)
        task = asyncio.get_running_loop().create_task(
            self._send(subjects, worker, job_ids if why else (), why)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(
        self, subjects: Sequence[str], worker: str, job_ids: Sequence[str], why: str
    ) -> None:
        try:
            for job_id in job_ids:
                await self._recovery.release(job_id, worker, why)
            await self._bus.give_back(subjects)
        except BusError as error:
            log.warning("%d claims return only when they lapse: %s", len(subjects), error)
