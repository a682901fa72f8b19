"""Answers operators who ask about stuck jobs of this host: ``penstock recover``."""

from __future__ import annotations

import logging
import time

import msgspec

from penstock.bus.protocol import Bus, Subscription
from penstock.events.recovering import RecoverAnswered, RecoverAsked, Suspect
from penstock.events.subjects import Subjects, check_name
from penstock.executor.recovering.stuck_jobs import StuckWatch

log = logging.getLogger("penstock.executor")


class RecoverDesk:
    """Hears what is asked, does it, and answers."""

    def __init__(self, bus: Bus, subjects: Subjects, host: str, stuck: StuckWatch) -> None:
        self._bus, self._subjects, self._host, self._stuck = bus, subjects, host, stuck

    async def open(self) -> Subscription:
        return await self._bus.listen(self._subjects.recover_asked(self._host), self._hear)

    async def _hear(self, _: str, body: bytes) -> None:
        try:
            asked = msgspec.json.decode(body, type=RecoverAsked)
            token = check_name("answer", asked.answer_to)
        except (ValueError, RecursionError) as error:  # also BadName
            log.warning("a question about stuck jobs is ignored: %s", error)
            return
        answer = RecoverAnswered(host=self._host, suspects=await self._answer(asked))
        subject = self._subjects.recover_answered(token)
        await self._bus.signal(subject, msgspec.json.encode(answer))

    async def _answer(self, asked: RecoverAsked) -> tuple[Suspect, ...]:
        """The suspects asked for, and what was done about them."""
        fitting = [
            suspect
            for suspect in self._stuck.suspects(time.monotonic(), asked.threshold)
            if suspect.score > asked.threshold
            and asked.job_id in ("", suspect.job_id)
            and asked.queue in ("", suspect.queue)
        ]
        if asked.strategy == "off":
            return tuple(fitting)
        return tuple([await self._stuck.recover(each, asked.strategy) for each in fitting])
