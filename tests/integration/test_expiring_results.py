"""A result with a time to live leaves the broker's storage by itself."""

from __future__ import annotations

from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import connect
from penstock.events.subjects import Subjects
from penstock.jobs.running import expiring_results


async def test_the_broker_removes_an_expired_result(settings: MakeSettings) -> None:
    given = settings()
    bus, subjects = await connect(given), Subjects(given.prefix)
    kept, expiring = (
        expiring_results.outgoing(subjects, name, 7, b"\x01", seconds)
        for name, seconds in (("kept", 600), ("expiring", 0.5))
    )
    await bus.append_many([kept, expiring])

    async def left() -> bool:
        return set(await bus.count(subjects.keys_stream, subjects.key("result", "*"))) == {
            kept.subject
        }

    await eventually(left, 20, "the end of one result")
    await bus.close()
