"""An empty message in a stream hides nothing from those who read it from another account."""

from __future__ import annotations

import asyncio

from tests.integration.guarded import GuardedBroker, join
from tests.making import MakeSettings

from penstock.bus.nats import connect
from penstock.bus.protocol import Outgoing
from penstock.events.subjects import Subjects

SUBJECTS = Subjects()
NAMES = [f"j{number}" for number in range(30)]
EMPTY = {"j3", "j4", "j11", "j29"}


async def test_a_follower_sees_what_lies_behind_an_empty_event(
    guarded: GuardedBroker, settings: MakeSettings
) -> None:
    settings.prefix = "penstock"
    bus = await connect(guarded.settings(settings, "orchestrator"))
    stranger = await join(guarded, "dispatcher")
    try:
        # given events, some of which a stranger wrote, without a byte
        for name in NAMES:
            subject = SUBJECTS.events("job", name, "JobDispatched")
            if name in EMPTY:
                await stranger.request(subject, b"", 5.0)
            else:
                await bus.append(Outgoing(subject, b"{}"))

        # when they are followed, then all are seen, in order
        seen: list[str] = []
        async with asyncio.timeout(20):
            pattern = SUBJECTS.events("job")
            async for stored in bus.follow(SUBJECTS.events_stream, [pattern], "all"):
                seen.append(stored.subject.split(".")[3])
                if len(seen) == len(NAMES):
                    break
        assert seen == NAMES
    finally:
        await stranger.close()
        await bus.close()
