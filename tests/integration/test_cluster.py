"""Three servers, three copies of each stream: one may go at any time and nothing is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import nats.errors
import pytest
from msgspec.structs import replace
from tests.integration.cluster import NAMES, Cluster, cluster
from tests.integration.guarded import join
from tests.integration.sample_jobs import QUEUE, note
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import connect
from penstock.bus.protocol import Bus, BusUnavailable
from penstock.events.subjects import Subjects
from penstock.jobs import Client
from penstock.jobs.queues import queue_messages

JOBS = 60


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path) as found:
        yield found


async def _told_leader(three: Cluster, stream: str) -> str:
    """Who leads a stream; empty while nobody does. Asked of one that lives."""
    node = next(each for each in three.nodes.values() if each.child)
    client = await join(node, "operator")
    try:
        answer = json.loads((await client.request(f"$JS.API.STREAM.INFO.{stream}", b"")).data)
    except nats.errors.TimeoutError:
        return ""
    finally:
        await client.close()
    copies = answer.get("cluster", {})
    return str(copies.get("leader", "")) if len(copies.get("replicas", ())) == 2 else ""


async def _leader(three: Cluster, stream: str) -> str:
    async def told() -> str:
        return await _told_leader(three, stream)

    found: str = await eventually(told, 20, f"a leader of {stream}")
    return found


async def _told(bus: Bus, subjects: Subjects) -> set[str]:
    """Jobs that the event log knows."""
    dispatched = subjects.events("job", "*", "JobDispatched")
    counts = await bus.count(subjects.events_stream, dispatched)
    return {subject.split(".")[3] for subject in counts}


async def _queued(bus: Bus, subjects: Subjects) -> set[str]:
    """Jobs with a message in the queue; one whose answer was lost with a server may have two."""
    line = await bus.history(subjects.jobs_stream, subjects.queue(QUEUE))
    return {message.headers[queue_messages.JOB] for message in line}


async def _holds(
    kept: Callable[[Bus, Subjects], Awaitable[set[str]]],
    bus: Bus,
    subjects: Subjects,
    ids: list[str],
) -> bool:
    """Whether it holds these and no others; no, while the copies still choose who leads."""
    try:
        return await kept(bus, subjects) == set(ids)
    except BusUnavailable:
        return False


def _are(ids: list[str], enough: int) -> bool:
    return len(ids) >= enough


async def test_the_server_that_leads_is_killed_and_nothing_is_lost(
    three: Cluster, settings: MakeSettings, tmp_path: Path
) -> None:
    settings.prefix = "penstock"
    subjects = Subjects("penstock")
    makes_streams = await connect(three.settings(settings, "orchestrator"))
    asked = three.settings(settings, "dispatcher")
    dispatches = replace(asked, dispatch=replace(asked.dispatch, when_away="wait"))
    ids: list[str] = []
    async with Client.connect(dispatches) as client:

        async def offer() -> None:
            while len(ids) < JOBS:
                ids.append(await client.dispatch(note(str(tmp_path / "diary"), "x")))

        offering = asyncio.create_task(offer())
        for _ in NAMES[:2]:
            enough = min(len(ids) + 5, JOBS)
            await eventually(partial(_are, ids, enough), 20, "more jobs")
            victim = await _leader(three, subjects.events_stream)
            three.nodes[victim].kill()
            assert await _leader(three, subjects.events_stream) != victim
            three.nodes[victim].start()
        await asyncio.wait_for(offering, 60)
    for kept in (_told, _queued):
        await eventually(partial(_holds, kept, makes_streams, subjects, ids), 20, kept.__name__)
    await makes_streams.close()
