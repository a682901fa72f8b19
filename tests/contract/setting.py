"""What the bus contract is told about the bus that it examines, and a few words for its stories."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from penstock.bus.protocol import Bus, Delivery, Outgoing, Puller, Stored
from penstock.events.subjects import Subjects

LONG_CLAIM_SECONDS = 30.0
SHORT_CLAIM_SECONDS = 0.3


@dataclass
class Examined:
    """A bus under examination.

    Attributes:
        subjects: names below its prefix.
        connect: a client whose queues have these claim seconds; all clients of a test share one
            broker, and the first to use a queue settles its claim.
    """

    subjects: Subjects
    connect: Callable[[float], Awaitable[Bus]]

    async def client(self, claim_seconds: float = LONG_CLAIM_SECONDS) -> Bus:
        return await self.connect(claim_seconds)

    def event(self, job: str, name: str = "JobStarted") -> str:
        return f"{self.subjects.prefix}.events.job.{job}.{name}"

    def schedule(self, job: str, after_seconds: float, queue: str = "q") -> Outgoing:
        due = datetime.now(UTC) + timedelta(seconds=after_seconds)
        return Outgoing(
            self.subjects.schedule(queue, job),
            job.encode(),
            {
                "Nats-Schedule": f"@at {due.isoformat().replace('+00:00', 'Z')}",
                "Nats-Schedule-Target": self.subjects.queue(queue),
                "Penstock-Job": job,
            },
        )


async def take(iterator: AsyncIterator[Stored], count: int) -> list[Stored]:
    """The next ``count`` messages of a follow."""
    async with asyncio.timeout(10):
        return [await anext(iterator) for _ in range(count)]


async def drain(puller: Puller, count: int) -> list[Delivery]:
    """``count`` deliveries of a queue, in as many fetches as it takes."""
    found: list[Delivery] = []
    async with asyncio.timeout(10):
        while len(found) < count:
            found += await puller.fetch(count - len(found), 1.0)
    return found


def bodies(messages: Sequence[Stored | Delivery]) -> list[bytes]:
    return [message.body for message in messages]


def numbered(subject: str, count: int) -> list[Outgoing]:
    return [Outgoing(subject, b"%d" % number) for number in range(count)]
