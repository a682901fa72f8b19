"""Whoever waits for a job, batch or graph whose history has left the log gets an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest
from tests.buses import both
from tests.integration.turned_jobs import hold, note
from tests.integration.turning import WITHIN, Stage
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.protocol import Bus, Subscription
from penstock.events.batch import BATCH_EVENTS, BatchCompleted
from penstock.events.graph import GRAPH_EVENTS, GraphCompleted
from penstock.jobs import Client
from penstock.jobs.errors import NotFound
from penstock.jobs.event_store.event_log import read_event


@pytest.fixture(params=both("nats"))
async def stage(request: pytest.FixtureRequest, settings: MakeSettings) -> AsyncIterator[Stage]:
    async with Stage(request.param, settings) as stage:
        yield stage


class Unnotified:
    """A bus whose signals are lost."""

    def __init__(self, bus: Bus) -> None:
        self._bus, self.listeners = bus, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def listen(
        self, subject: str, handler: Callable[[str, bytes], Awaitable[None] | None]
    ) -> Subscription:
        self.listeners += 1
        return await self._bus.listen(f"lost.{subject}", handler)


def _all_waits(client: Client, job: str, batch: str, graph: str) -> list[Coroutine[Any, Any, Any]]:
    return [client.wait(job), client.batches.wait(batch), client.graphs.wait(graph)]


async def _ended(stage: Stage, batch: str, graph: str) -> None:
    """Returns when both have recorded that they completed."""
    bus, subjects = stage.bus, stage.subjects

    async def is_so() -> bool:
        b = await bus.last(subjects.events_stream, subjects.events("batch", batch))
        g = await bus.last(subjects.events_stream, subjects.events("graph", graph))
        return (
            b is not None
            and g is not None
            and isinstance(read_event(b, BATCH_EVENTS), BatchCompleted)
            and isinstance(read_event(g, GRAPH_EVENTS), GraphCompleted)
        )

    await eventually(is_so, WITHIN, "end of batch and graph")


async def _start(stage: Stage, diary: str, gate: str) -> tuple[str, str, str]:
    """A job, a batch and a graph, each of which ends when the gate is there."""
    client = stage.client
    job = await client.dispatch(hold(diary=diary, line="job", gate=gate))
    async with client.batches.open(batch_id="b1") as batch:
        await batch.add([hold(diary=diary, line="member", gate=gate)])
    graph = await client.graphs.chain(
        [hold(diary=diary, line="step", gate=gate), note(diary=diary, line="last")]
    )
    return job, "b1", graph


async def test_waiting_for_what_has_left_the_log_fails_at_once_and_says_so(
    stage: Stage, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    async with stage.worker(), stage.orchestrator():
        job, batch, graph = await _start(stage, str(tmp_path / "diary"), str(gate))
        gate.touch()
        await _ended(stage, batch, graph)
        await stage.turn_over()
        await stage.turn_over()
        for wait in _all_waits(stage.client, job, batch, graph):
            with pytest.raises(NotFound, match="its events may have aged out"):
                await asyncio.wait_for(wait, WITHIN)


async def test_a_wait_that_missed_the_end_and_the_whole_history_is_answered(
    stage: Stage, tmp_path: Path
) -> None:
    """Given clients that wait without being notified, while all that they wait for ends and leaves
    the log; then each gets the record, if it looked in time, or the error that it is gone."""
    gate = tmp_path / "gate"
    deaf = Unnotified(stage.bus)
    client = Client.over(cast("Bus", deaf), stage.settings)
    async with stage.worker(), stage.orchestrator():
        job, batch, graph = await _start(stage, str(tmp_path / "diary"), str(gate))
        waits = [asyncio.ensure_future(one) for one in _all_waits(client, job, batch, graph)]
        await eventually(lambda: deaf.listeners == len(waits), WITHIN, "clients that wait")
        gate.touch()
        await _ended(stage, batch, graph)
        await stage.turn_over()
        await stage.turn_over()
        answers = await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), WITHIN)
    for answer in answers:
        assert isinstance(answer, NotFound) or answer.state == "completed"
