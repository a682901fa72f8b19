"""Answers ``penstock recover``: requests of operators about stuck jobs of this host."""

from __future__ import annotations

import logging
import time

import msgspec

from penstock.bus.protocol import Bus, Subscription
from penstock.events.recovering import RecoverAnswered, RecoverAsked, Suspect
from penstock.events.subjects import Subjects, check_name
from penstock.executor.recovering.stuck_jobs import StuckWatch

log = logging.getLogger("penstock.executor")


class RecoverRequests:
    """Handles each request and answers it."""

    def __init__(self, bus: Bus, subjects: Subjects, host: str, stuck: StuckWatch) -> None:
        self._bus, self._subjects, self._host, self._stuck = bus, subjects, host, stuck

    async def open(self) -> Subscription:
        return await self._bus.listen(self._subjects.recover_asked(self._host), self._on_request)

    async def _on_request(self, _: str, body: bytes) -> None:
        try:
            request = msgspec.json.decode(body, type=RecoverAsked)
            token = check_name("answer", request.answer_to)
        except (ValueError, RecursionError) as error:  # also BadName
            log.warning("a request about stuck jobs is ignored: %s", error)
            return
        answer = RecoverAnswered(host=self._host, suspects=await self._suspects(request))
        subject = self._subjects.recover_answered(token)
        await self._bus.signal(subject, msgspec.json.encode(answer))

    async def _suspects(self, request: RecoverAsked) -> tuple[Suspect, ...]:
        """The suspects asked for, and what was done about them."""
        fitting = [
            suspect
            for suspect in self._stuck.suspects(time.monotonic(), request.threshold)
            if suspect.score > request.threshold
            and request.job_id in ("", suspect.job_id)
            and request.queue in ("", suspect.queue)
        ]
        if request.strategy == "off":
            return tuple(fitting)
        return tuple([await self._stuck.recover(suspect, request.strategy) for suspect in fitting])
