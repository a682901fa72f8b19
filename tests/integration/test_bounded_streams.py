"""One stream that is full leaves the others room, and loses nothing that was acknowledged."""

from __future__ import annotations

from pathlib import Path

from tests.integration import orchestrating
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import connect
from penstock.bus.protocol import BusError, Outgoing
from penstock.events.subjects import Subjects
from penstock.runtime.broker import Broker

BOUNDS = {
    "events_max_bytes": 16_000_000,
    "others_max_bytes": 1_000_000,
}
BODY = bytes(100_000)


async def test_a_stream_that_is_flooded_refuses_and_the_others_go_on(
    tmp_path: Path, settings: MakeSettings
) -> None:
    subjects = Subjects(settings.prefix)
    with Broker(tmp_path) as broker:
        bus = await connect(settings(nats={"url": broker.url}, streams=BOUNDS))
        flood = [Outgoing(subjects.key("rate", f"k{n}"), BODY) for n in range(40)]
        answers = await bus.append_many(flood)
        stored = [answer for answer in answers if isinstance(answer, int)]
        assert 5 <= len(stored) < 40
        assert all(isinstance(one, int | BusError) for one in answers)
        kept = await bus.count(subjects.keys_stream, subjects.key("*", "*"))
        assert len(kept) == len(stored)
        for subject in (subjects.state("pause", "q"), subjects.dead("q", "j")):
            assert await bus.append(Outgoing(subject, b"{}"))
        await bus.close()


async def test_streams_of_an_earlier_version_are_bounded_and_lose_nothing(
    tmp_path: Path, settings: MakeSettings
) -> None:
    subjects = Subjects(settings.prefix)
    with Broker(tmp_path) as broker:
        before = {"events_max_bytes": 16_000_000}
        bus = await connect(settings(nats={"url": broker.url}, streams=before))
        await bus.append(Outgoing(subjects.queue("q"), b"{}"))
        orchestrator = orchestrating.start(
            settings(nats={"url": broker.url}, streams={**BOUNDS, "others_max_bytes": 8_000_000})
        )

        jobs = subjects.jobs_stream

        async def bounds() -> dict[str, tuple[int, str]]:
            configs = [info["config"] for info in await bus.stream_states()]
            return {one["name"]: (one["max_bytes"], one["discard"]) for one in configs}

        async def are_bounded() -> bool:
            found = await bounds()
            return all(size > 0 for name, (size, _) in found.items() if name != jobs)

        await eventually(are_bounded, 20, "bounds of all streams")
        found = await bounds()
        assert found[subjects.dead_stream] == (8_000_000, "new")
        assert found[subjects.snapshots_stream] == (8_000_000, "old")
        assert await bus.count(subjects.jobs_stream, subjects.queue("*")) == {
            subjects.queue("q"): 1
        }
        await orchestrator.stop(grace_seconds=10)
        await bus.close()
