"""What makes the log turn over: histories of other jobs, of bytes that do not compress."""

from __future__ import annotations

import asyncio
import base64
import os
import time
from contextlib import suppress
from typing import Any

from tests.turnover.turnover_jobs import swallow

from penstock.bus.nats import NatsBus
from penstock.bus.protocol import BusError, Outgoing
from penstock.bus.streams import dispatch_limit
from penstock.events.envelope import encode, new_id
from penstock.events.job import JobCompleted, JobDispatched, JobEvent, JobStarted
from penstock.jobs import Client

MARK = "traffic-"
"""Begins the ids of jobs that never ran: only their histories are stored."""
_PAYLOAD_BYTES, _AT_ONCE = 8_000, 10
_RUN_BYTES, _RUN_SECONDS = 4_000, 0.2
_AGAIN_SECONDS = 0.05
_MOST_LAG = 1_000


class Traffic:
    """Events at a rate, as far as the log takes them and the recorder keeps up.

    Args:
        bytes_per_second: at most so much.

    Attributes:
        recorded: sequence that the recorder has read; it is set by the recorder.
        bytes: stored until now. refused: how often the log took nothing.
        jobs: ids of the jobs among them that really run.
    """

    def __init__(self, bus: NatsBus, client: Client, bytes_per_second: float) -> None:
        self._bus, self._client, self._rate = bus, client, bytes_per_second
        self._stored = 0
        self.recorded = self.bytes = self.refused = 0
        self.jobs: list[str] = []

    async def histories(self) -> None:
        """Stores them, until it is cancelled."""
        began = time.monotonic()
        due = 0.0
        while True:
            due = max(due, (time.monotonic() - began) * self._rate - self._rate)  # no catching up
            if due > (time.monotonic() - began) * self._rate or self._lag > _MOST_LAG:
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            with suppress(BusError):
                if not await self._has_room():
                    self.refused += 1
                    await asyncio.sleep(_AGAIN_SECONDS)
                    continue
                messages = [one for _ in range(_AT_ONCE) for one in self._history()]
                answers = await self._bus.append_many(messages)
                for message, answer in zip(messages, answers, strict=True):
                    if isinstance(answer, int):
                        self._stored = max(self._stored, answer)
                        due += len(message.body) + len(message.subject)
                        self.bytes += len(message.body) + len(message.subject)

    @property
    def _lag(self) -> int:
        return self._stored - self.recorded

    async def _has_room(self) -> bool:
        """As a dispatch would be refused."""
        extent = await self._bus.extent(self._bus.subjects.events_stream)
        return extent.bytes < dispatch_limit(extent.configured_bytes)

    def _history(self) -> list[Outgoing]:
        about: dict[str, Any] = {"job_id": f"{MARK}{new_id()}", "source": "traffic"}
        payload = os.urandom(_PAYLOAD_BYTES)
        events: tuple[JobEvent, ...] = (
            JobDispatched(queue="others", function="none", payload=payload, **about),
            JobStarted(queue="others", attempt=1, host="h", worker="w", **about),
            JobCompleted(queue="others", attempt=1, run_seconds=0.1, **about),
        )
        return [Outgoing(self._bus.subjects.event(event), encode(event)) for event in events]

    async def runs(self) -> None:
        """Dispatches jobs that run, until it is cancelled."""
        while True:
            data = base64.b85encode(os.urandom(_RUN_BYTES)).decode()
            with suppress(BusError):  # then it may have been taken or not
                self.jobs.append(await self._client.dispatch(swallow(data=data)))
            await asyncio.sleep(_RUN_SECONDS)
