"""Giving back what dead workers held, so that it runs elsewhere at once."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from penstock.bus.protocol import Bus, BusError
from penstock.executor.recovery import Recovery
from penstock.runtime.tasks import Tasks

log = logging.getLogger("penstock.executor")

ACK_SUBJECT = re.compile(r"\$JS\.ACK\.[^\s*>]+")
"""Reports come on a plain subject: nothing else may be published to by what they say."""


class Returns:
    """Sends what is given back beside other work; lost ones return when their claim lapses."""

    def __init__(self, bus: Bus, recovery: Recovery) -> None:
        self._bus, self._recovery = bus, recovery
        self._tasks = Tasks()

    def give_back(
        self,
        ack_subjects: Sequence[str],
        worker: str = "",
        job_ids: Sequence[str] = (),
        why: str = "",
    ) -> None:
        """Returns messages to their queues; with ``why`` the jobs' events say so first.

        Args:
            job_ids: of the messages, in their order.
        """
        claims = {
            subject: job_id
            for subject, job_id in zip_longest(ack_subjects, job_ids, fillvalue="")
            if ACK_SUBJECT.fullmatch(subject)
        }
        if len(claims) < len(ack_subjects):
            log.warning("a worker reported claims that are none: %r", ack_subjects)
        self._tasks.spawn(self._send(claims, worker, why))

    async def _send(self, claims: Mapping[str, str], worker: str, why: str) -> None:
        """Giving back is not fenced: what another worker runs by now would be taken from it."""
        try:
            for subject, job_id in claims.items():
                if job_id and why:
                    await self._recovery.release(job_id, worker, why)
                if not job_id or await self._recovery.is_free(job_id, worker):
                    await self._bus.give_back([subject])
        except BusError as error:
            log.warning("%d claims return only when they lapse: %s", len(claims), error)
