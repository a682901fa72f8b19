"""A log that turns over: traffic of other jobs, and what waits for the history to be shortened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.installation import Installation
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.protocol import Bus, BusError, BusUnavailable, Outgoing
from penstock.events.envelope import encode, new_id
from penstock.events.job import JobCompleted, JobDispatched, JobEvent, JobStarted

LIMIT_BYTES = 1_000_000
QUEUE = "turned"
WITHIN = 30.0


class Stage(Installation):
    """A client on a broker with a small log, and on demand workers and orchestrators."""

    def __init__(self, kind: str, make: MakeSettings, **tables: Any) -> None:
        usual = {
            "jobs": {"claim_seconds": 2},
            "pools": {QUEUE: {"tries": 3}, "paused": {}},
            "nats": {"user": ""},
            "streams": {"events_max_bytes": LIMIT_BYTES},
        }
        super().__init__(kind, make(**{**usual, **tables}), QUEUE, after_seconds=0.6)

    async def traffic(self, size: int = LIMIT_BYTES // 2) -> None:
        """Events of jobs that were dispatched, started and completed: so many bytes."""
        written = 0
        while written < size:
            messages = [message for _ in range(50) for message in self._whole_job()]
            for answer in await self.bus.append_many(messages):
                if isinstance(answer, BusError):
                    raise answer
            written += sum(len(message.body) + len(message.subject) for message in messages)

    def _whole_job(self) -> list[Outgoing]:
        about: dict[str, Any] = {"job_id": new_id(), "source": "traffic"}
        events: tuple[JobEvent, ...] = (
            JobDispatched(queue="others", function="none", payload=b"x" * 600, **about),
            JobStarted(queue="others", attempt=1, host="h", worker="w", **about),
            JobCompleted(queue="others", attempt=1, run_seconds=0.1, **about),
        )
        return [Outgoing(self.subjects.event(event), encode(event)) for event in events]

    async def first(self) -> int:
        """Sequence of the log's first message."""
        return (await self.bus.extent(self.subjects.events_stream)).first

    async def turn_over(self) -> None:
        """Returns when no message is left that is there now."""
        end = (await self.bus.extent(self.subjects.events_stream)).last

        async def is_gone() -> bool:
            if await self.first() > end:
                return True
            extent = await self.bus.extent(self.subjects.events_stream)
            if extent.bytes < LIMIT_BYTES:
                await self.traffic(LIMIT_BYTES // 4)
            return False

        await eventually(is_gone, WITHIN, "turnover of the log")

    async def dead_letters(self) -> list[str]:
        stored = await self.bus.history(self.subjects.dead_stream, self.subjects.dead("*", "*"))
        return [one.subject for one in stored]


class CutShort:
    """A bus on which shortening the log is cut off a few times: halfway through carrying, and
    between carrying and removing."""

    def __init__(self, bus: Bus, events: str) -> None:
        self._bus, self._events, self.cuts = bus, events, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def append_many(self, messages: Sequence[Outgoing]) -> list[int | BusError]:
        is_carrying = any(one.subject.endswith("JobCarried") for one in messages)
        if is_carrying and self.cuts < 2:
            self.cuts += 1
            await self._bus.append_many(messages[: len(messages) // 2])
            raise BusUnavailable("cut off while carrying")
        return await self._bus.append_many(messages)

    async def remove(self, stream: str, subject: str, before: int = 0) -> None:
        if stream == self._events and 2 <= self.cuts < 4:
            self.cuts += 1
            raise BusUnavailable("cut off before removing")
        await self._bus.remove(stream, subject, before)
