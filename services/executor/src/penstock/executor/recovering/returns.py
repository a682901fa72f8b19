"""Giving back what dead workers held, so that it runs elsewhere at once."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest

from penstock.bus import bounded
from penstock.bus.protocol import Bus, BusError
from penstock.executor.recovering.job_recovery import Recovery, Return
from penstock.jobs.running.worker_loss import to_blame
from penstock.runtime.tasks import Tasks

log = logging.getLogger("penstock.executor")

ACK_SUBJECT = re.compile(r"\$JS\.ACK\.[^\s*>]+")
"""Reports come on a plain subject: no other subject that they name may be published to."""

_AT_ONCE = 20


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
        *,
        ran: Collection[str] = (),
        ended: str = "",
    ) -> None:
        """Returns messages to their queues, after the reason was recorded in the jobs' events.

        Args:
            job_ids: of the messages, in their order.
            ran: the jobs that ran when their process died.
            ended: how the worker ended.
        """
        claims = {
            subject: job_id
            for subject, job_id in zip_longest(ack_subjects, job_ids, fillvalue="")
            if ACK_SUBJECT.fullmatch(subject)
        }
        if len(claims) < len(ack_subjects):
            log.warning("a worker reported claims that are no ack subjects: %r", ack_subjects)
        self._tasks.spawn(self._send(claims, worker, ran, ended))

    async def _send(
        self, claims: Mapping[str, str], worker: str, ran: Collection[str], ended: str
    ) -> None:
        """The jobs that did not run first: they can start while the others are looked at."""
        waiting = sorted(claims.items(), key=lambda claim: claim[1] in ran)
        behind = f"{ended}; this job waited there behind {_named(ran)}" if ran else ended
        beside = f"{ended}; it ran {len(ran)} jobs" if len(ran) > 1 else ended
        suspects: set[str] = set()

        async def give_back(claim: tuple[str, str]) -> None:
            subject, job = claim
            if job in ran:
                together = to_blame(job in suspects, len(ran), len(suspects))
                await self._one(subject, job, worker, together, beside)
            else:
                await self._one(subject, job, worker, 0, behind)

        try:
            if len(ran) > 1:
                suspects = await self._recovery.suspects(ran)
                if suspects:
                    beside += f", {len(suspects)} of them suspects"
            await bounded.gather(give_back, waiting, _AT_ONCE)
        except BusError as error:
            log.warning(
                "%d claims cannot be given back and lapse by themselves: %s", len(claims), error
            )

    async def _one(
        self, subject: str, job_id: str, worker: str, together: int, reason: str
    ) -> None:
        """Neither answer is fenced: what another worker runs by now would be taken from it."""
        if not job_id:
            await self._bus.give_back([subject])
            return
        how = await self._recovery.lost(job_id, worker, subject, reason, together=together)
        if how is Return.AT_ONCE:
            await self._bus.give_back([subject])
        elif how is Return.SETTLED:
            await self._recovery.ack(subject)


def _named(jobs: Collection[str]) -> str:
    """A job's id, or how many there are."""
    return next(iter(jobs)) if len(jobs) == 1 else f"{len(jobs)} jobs"
