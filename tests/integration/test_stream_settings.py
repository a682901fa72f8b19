"""Streams that an earlier version made take over the settings of now, and lose nothing by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.integration import orchestrating
from tests.integration.guarded import GuardedBroker
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.access import NotPermitted
from penstock.bus.nats import NatsBus, connect
from penstock.bus.protocol import Outgoing
from penstock.events.subjects import Subjects
from penstock.runtime.broker import Broker

PLAIN = {"compression": "none", "events_max_bytes": 64_000_000}
COMPRESSED = {**PLAIN, "compression": "s2"}
MESSAGES = 20_000
BODY = b'{"type":"JobReleased","reason":"' + b"a reason " * 100 + b'"}'


async def configuration(bus: NatsBus, stream: str) -> dict[str, Any]:
    states = {state["config"]["name"]: state["config"] for state in await bus.stream_states()}
    return states[stream]


async def fill(bus: NatsBus, subjects: Subjects, name: str) -> None:
    for start in range(0, MESSAGES, 1000):
        numbers = range(start, start + 1000)
        stored = await bus.append_many(
            [Outgoing(subjects.events("job", f"{name}{n}", "JobReleased"), BODY) for n in numbers]
        )
        assert all(isinstance(answer, int) for answer in stored)


def stored_bytes(store: Path, stream: str) -> int:
    [folder] = store.rglob(f"streams/{stream}")
    return sum(file.stat().st_size for file in folder.rglob("*.blk"))


async def test_an_orchestrator_has_existing_streams_compressed(
    tmp_path: Path, settings: MakeSettings
) -> None:
    """From the broker's restart on; older blocks stay as they are, and all can be read."""
    subjects = Subjects(settings.prefix)
    events = subjects.events_stream
    with Broker(tmp_path) as broker:
        tables: dict[str, Any] = {"nats": {"url": broker.url}}
        bus = await connect(settings(streams=PLAIN, **tables))
        before = await configuration(bus, events)
        await fill(bus, subjects, "a")
        orchestrator = orchestrating.start(settings(streams=COMPRESSED, **tables))

        async def updated() -> bool:
            streams = (events, subjects.snapshots_stream)
            return {(await configuration(bus, name))["compression"] for name in streams} == {"s2"}

        try:
            await eventually(updated, 20, "streams to be updated")
        finally:
            await orchestrator.stop(grace_seconds=10)
        assert (await configuration(bus, events)) == {**before, "compression": "s2"}
        await bus.close()
        broker.stop()
        plain_bytes = stored_bytes(tmp_path, events)
        broker.start()
        bus = await connect(settings(streams=COMPRESSED, **tables))
        await fill(bus, subjects, "b")
        kept = [
            await bus.last(events, subjects.events("job", f"{name}{number}"))
            for name in "ab"
            for number in (0, MESSAGES - 1)
        ]
        assert [stored.body for stored in kept if stored] == [BODY] * 4
        await bus.close()
        broker.stop()
        grown = stored_bytes(tmp_path, events) - plain_bytes
    assert plain_bytes > MESSAGES * len(BODY)
    assert grown < plain_bytes / 2


async def test_the_orchestrators_key_may_update_streams_and_others_leave_them(
    tmp_path: Path, settings: MakeSettings
) -> None:
    settings.prefix = "penstock"
    with GuardedBroker(tmp_path) as broker:
        bus = await connect(broker.settings(settings, "orchestrator", streams=PLAIN))
        await bus.close()
        bus = await connect(broker.settings(settings, "metrics", streams=COMPRESSED))
        with pytest.raises(NotPermitted):
            await bus.update_streams()
        assert bus.violations == 0
        await bus.close()
        bus = await connect(broker.settings(settings, "orchestrator", streams=COMPRESSED))
        assert (await configuration(bus, "EVENTS"))["compression"] == "none"
        changes = {"compression": "s2"}
        assert await bus.update_streams() == dict.fromkeys(("EVENTS", "LOGS", "SNAPSHOTS"), changes)
        assert await bus.update_streams() == {}
        await bus.close()
