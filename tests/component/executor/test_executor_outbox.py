"""Events wait for a broker that is away, and arrive in order, each once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.waiting import eventually

from penstock.bus.protocol import BusError, BusUnavailable, Outgoing
from penstock.config import Settings
from penstock.events.subjects import Subjects
from penstock.events.worker import WORKER_EVENTS, HostLost
from penstock.executor.outbox import Outbox
from penstock.executor.recovering.job_recovery import Recovery
from penstock.executor.recovering.returns import Returns
from penstock.testing.memory.bus import MemoryBus

SUBJECTS = Subjects()


class Away(MemoryBus):
    """A broker that is away, or comes back without having said that it took something."""

    away = True
    deaf = False
    tried = 0

    async def append_many(self, messages: Sequence[Outgoing]) -> list[int | BusError]:
        self.tried += 1
        if self.away:
            raise BusUnavailable("nobody there")
        answers = await super().append_many(messages)
        if self.deaf:
            self.deaf = False
            raise BusUnavailable("no answer in time")
        return answers


async def _arrived(bus: MemoryBus) -> list[float]:
    stored = await bus.history(SUBJECTS.events_stream, SUBJECTS.events("host"))
    events = [WORKER_EVENTS.decode(each.body) for each in stored]
    return [event.silent_seconds for event in events if isinstance(event, HostLost)]


async def test_what_could_not_be_sent_is_sent_later_in_order_and_once() -> None:
    bus = Away()
    outbox = Outbox(bus, SUBJECTS, retry_seconds=0.01)
    sending = asyncio.create_task(outbox.run())
    for number in range(250):
        outbox.put(HostLost(host="h", silent_seconds=float(number)))
    await eventually(lambda: bus.tried)
    assert not await outbox.flush(0.01)
    bus.away, bus.deaf = False, True
    assert await outbox.flush(5)
    assert await _arrived(bus) == [float(n) for n in range(250)]
    sending.cancel()


async def test_only_claims_are_given_back() -> None:
    given: list[str] = []

    class Asked(MemoryBus):
        async def give_back(self, ack_subjects: Sequence[str], delay_seconds: float = 0.0) -> None:
            given.extend(ack_subjects)

    bus = Asked()
    Returns(bus, Recovery(bus, Settings(), "test")).give_back(
        ["$JS.ACK.JOBS.q_mail.1.2.3.4.5", "penstock.commands.h", "$JS.ACK. x"]
    )
    await eventually(lambda: given)
    assert given == ["$JS.ACK.JOBS.q_mail.1.2.3.4.5"]
