"""What is too large to be carried past the log's old end holds up nothing else."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.buses import both, on_both
from tests.integration.turned_jobs import note
from tests.integration.turning import LIMIT_BYTES, QUEUE, WITHIN, Stage
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.protocol import Outgoing
from penstock.events.envelope import encode
from penstock.events.graph import GraphStarted, GraphStep
from penstock.events.job import JobCancelled, JobCommitted, JobDispatched, JobEvent, JobStarted
from penstock.health.facts import BrokerFacts, Facts, LogFacts
from penstock.health.report import State as Health
from penstock.health.rules import judge
from penstock.jobs.errors import NotFound
from penstock.jobs.lifecycle import State
from penstock.jobs.queues import queue_messages

_LOCATION = "x" * 300_000
_COMMITS = 4
_MOST_BYTES = 1_048_576 - 600
"""Of an event, its headers left out."""


@pytest.fixture(params=both("nats"))
async def stage(request: pytest.FixtureRequest, settings: MakeSettings) -> AsyncIterator[Stage]:
    async with Stage(request.param, settings) as stage:
        yield stage


async def store(stage: Stage, *events: JobEvent | GraphStarted) -> None:
    for event in events:
        await stage.bus.append(Outgoing(stage.subjects.event(event), encode(event)))


async def start_large(stage: Stage, job_id: str) -> None:
    """A running job whose commits take more than an event may."""
    await store(
        stage,
        JobDispatched(job_id=job_id, queue=QUEUE, function="old", payload=b"{}"),
        JobStarted(job_id=job_id, queue=QUEUE, attempt=1, host="h", worker="w"),
        *(
            JobCommitted(job_id=job_id, output=f"part {number}", location=_LOCATION)
            for number in range(_COMMITS)
        ),
    )


async def turn_over(stage: Stage, *stays: str) -> None:
    """Returns when nothing is left that is there now, but for what belongs to these."""
    stream = stage.subjects.events_stream
    end = (await stage.bus.extent(stream)).last

    async def is_gone() -> bool:
        if (await stage.bus.extent(stream)).bytes < 2 * LIMIT_BYTES:
            await stage.traffic(LIMIT_BYTES // 4)
        left = await stage.bus.history(stream, ">", 50)
        return all(one.sequence > end or one.subject.split(".")[3] in stays for one in left)

    await eventually(is_gone, WITHIN, "turnover of the log")


async def test_a_job_that_is_too_large_stays_and_holds_up_nothing(stage: Stage) -> None:
    """Given a job whose record no event can hold, as earlier versions took them; then the log is
    shortened around it, it is shown whole, others are carried, and it goes when it has ended."""
    await start_large(stage, "large")
    later = await stage.client.dispatch(note(diary="", line="later"), delay=3600)
    async with stage.orchestrator() as orchestrator:
        for _ in range(2):
            await turn_over(stage, "large")
        view = await stage.client.job("large")
        assert view.state is State.RUNNING
        assert len(view.record.commits) == _COMMITS
        assert (await stage.client.job(later)).state is State.SCHEDULED
        assert orchestrator.history.uncarried.names == {("job", "large")}

        await store(stage, JobCancelled(job_id="large", reason="the test is over"))
        await turn_over(stage)
        with pytest.raises(NotFound):
            await stage.client.job("large")
        assert (await stage.client.job(later)).state is State.SCHEDULED


async def test_a_message_of_a_job_that_ended_is_dropped_quietly_behind_one_that_stays(
    stage: Stage, tmp_path: Path
) -> None:
    """The log's first message is old then, and says nothing of what has left."""
    await start_large(stage, "large")
    client, diary = stage.client, tmp_path / "diary"
    async with stage.worker(), stage.orchestrator():
        name = await client.dispatch(note(diary=str(diary), line="once"))
        record = (await client.wait(name, WITHIN)).record
        await turn_over(stage, "large")
        headers = queue_messages.headers(name, record.life_from, 1, {})
        await stage.bus.append(Outgoing(stage.subjects.queue(QUEUE), record.payload, headers))
        await client.wait(await client.dispatch(note(diary=str(diary), line="after")), WITHIN)
        assert await stage.dead_letters() == []
    assert diary.read_text().splitlines() == ["once", "after"]


@on_both
async def test_a_graph_that_is_too_large_stays(stage: Stage) -> None:
    """Its first event takes all that an event may, and what it is carried as is larger."""
    later = await stage.client.dispatch(note(diary="", line="later"), delay=3600)

    def graph(size: int) -> GraphStarted:
        lines = {"a": "waits", "b": "x" * 350_000, "c": "x" * size}
        steps = tuple(
            GraphStep(
                name=name,
                payload=stage.client.dispatcher.prepare(
                    note(diary="", line=line), f"large_step_{number}"
                ).payload,
                needs=(number - 1,) if number else (),
            )
            for number, (name, line) in enumerate(lines.items())
        )
        return GraphStarted(graph_id="large", source="s", steps=steps)

    room = _MOST_BYTES - len(encode(graph(0)))
    await store(stage, graph(room * 3 // 4))
    async with stage.orchestrator() as orchestrator:
        await turn_over(stage, "large")
        assert orchestrator.history.uncarried.names == {("graph", "large")}
        assert (await stage.client.graphs.show("large")).state == "running"
        assert (await stage.client.job(later)).state is State.SCHEDULED


async def test_of_too_many_such_jobs_the_log_keeps_a_bounded_part(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a stolen key could fill the log for good."""
    names = [f"large-{number}" for number in range(2)]
    for name in names:
        await start_large(stage, name)
    with caplog.at_level(logging.ERROR, "penstock.orchestrator"):
        async with stage.orchestrator():
            await eventually(lambda: "is lost: it is too large" in caplog.text, WITHIN)
            await turn_over(stage, "large-0")
            assert (await stage.client.job("large-0")).state is State.RUNNING


def test_health_names_what_cannot_be_carried() -> None:
    log = LogFacts(
        limit_bytes=1, held_bytes=1, tail_seconds=1.0,
        uncarried=2, uncarried_bytes=2_400_000, uncarried_name="job j1",
    )  # fmt: skip
    report = judge(Facts(broker=BrokerFacts(version="2.15.1"), log=log), None)  # type: ignore[arg-type]
    [streams] = [one for one in report.findings if one.component == "streams"]
    assert streams.state is Health.DEGRADED
    assert "2.4 MB), such as job j1" in " ".join(streams.reasons)
