"""Drains single workers of this host when an operator asks for it."""

from __future__ import annotations

import logging

import msgspec

from penstock.bus.protocol import Bus, Subscription
from penstock.events.draining import DrainAnswered, DrainAsked, DrainOutcome
from penstock.events.subjects import Subjects, check_name
from penstock.executor.core import facts
from penstock.executor.executor import Executor

log = logging.getLogger("penstock.executor")


class DrainRequests:
    """Handles each request and answers it."""

    def __init__(self, bus: Bus, subjects: Subjects, host: str, executor: Executor) -> None:
        self._bus, self._subjects, self._host = bus, subjects, host
        self._executor = executor

    async def open(self) -> Subscription:
        return await self._bus.listen(self._subjects.drain_asked(self._host), self._on_request)

    async def _on_request(self, _: str, body: bytes) -> None:
        try:
            request = msgspec.json.decode(body, type=DrainAsked)
            token = check_name("answer", request.answer_to)
            name = check_name("worker", request.worker)
        except (ValueError, RecursionError) as error:  # also BadName
            log.warning("a request to drain a worker is ignored: %s", error)
            return
        outcome = self._drain(name, request)
        answer = DrainAnswered(host=self._host, worker=name, outcome=outcome)
        await self._bus.signal(self._subjects.drain_answered(token), msgspec.json.encode(answer))

    def _drain(self, name: str, request: DrainAsked) -> DrainOutcome:
        worker = self._executor.fleet.workers.get(name)
        if worker is None:
            return "unknown"
        if not worker.active:
            return "already"
        log.info("worker %s is drained, by %.80s: %.200s", name, request.by, request.reason)
        self._executor.learn(facts.DrainRequested(worker=name))
        return "draining"
