"""No workflow loses anything to the bounds of the log, however long it waits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest
from tests.buses import both, on_both
from tests.integration.turned_workflows import (
    asleep,
    collected,
    drained,
    mapped,
    needs_mending,
    patient,
)
from tests.integration.turning import WITHIN, CutShort, Stage
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.protocol import Bus
from penstock.events.job import JobCarried
from penstock.events.workflow import MemoCarried
from penstock.jobs import derived_ids
from penstock.jobs.errors import NotFound
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import State


@pytest.fixture(params=both("memory"))
async def stage(request: pytest.FixtureRequest, settings: MakeSettings) -> AsyncIterator[Stage]:
    async with Stage(request.param, settings) as stage:
        yield stage


@pytest.fixture
def diary(tmp_path: Path) -> str:
    return str(tmp_path / "diary")


def lines(diary: str) -> list[str]:
    return sorted(Path(diary).read_text().splitlines()) if Path(diary).exists() else []


async def reached(stage: Stage, job_id: str, state: State) -> None:
    async def is_there() -> bool:
        record = await JobLog(stage.bus, stage.subjects).read(job_id)
        return record is not None and record.state is state

    await eventually(is_there, WITHIN, f"{job_id} {state}")


async def forget_positions(stage: Stage) -> None:
    """As if no orchestrator had ever stored how far it had read."""
    await stage.bus.remove(stage.subjects.state_stream, stage.subjects.state("cursor", "*"))


@on_both
async def test_a_workflow_loses_nothing_while_the_log_turns_over_again_and_again(
    stage: Stage, diary: str, tmp_path: Path
) -> None:
    """Given one that waits for a join of which one result is in, with signals that it will wait
    for later, one of them sent twice, and the log turns over three times with an orchestrator that
    begins anew each time; then nothing is lost, nothing runs twice, and each signal counts once."""
    gate = tmp_path / "gate"
    client, signal = stage.client, stage.client.workflows.signal
    async with stage.worker():
        async with stage.orchestrator():
            name = await client.dispatch(patient(diary=diary, gate=str(gate)))
            await signal(name, "go", 1, signal_id="a")
            await reached(stage, name, State.SUSPENDED)
            await reached(stage, derived_ids.step_id(name, 0), State.COMPLETED)
            await reached(stage, derived_ids.step_id(name, 1), State.RUNNING)
            await stage.turn_over()
        await signal(name, "go", 1, signal_id="a")
        await signal(name, "go", 2)
        for _ in range(2):
            await forget_positions(stage)
            async with stage.orchestrator():
                await stage.turn_over()
        view = await client.workflows.get(name)
        assert isinstance(view.job.events[0][1], JobCarried)
        assert [step.outcome for step in view.steps] == ["completed", "completed", "waiting"]
        await forget_positions(stage)
        async with stage.orchestrator():
            gate.touch()
            await _awaits(stage, name, "go#3")
            await signal(name, "go", 1, signal_id="a")
            await stage.turn_over()
            taken = stage.subjects.job(derived_ids.step_id(name, 0))
            assert not await stage.bus.count(stage.subjects.events_stream, taken)
            await signal(name, "go", 3, signal_id="b")
            ended = await client.wait(name, WITHIN)
    assert ended.result == {"rate": "rate", "joined": ["first", "second"], "signals": [1, 2, 3]}
    assert lines(diary) == ["first", "rate", "second"]
    assert await stage.dead_letters() == []


async def _awaits(stage: Stage, name: str, key: str) -> None:
    async def is_there() -> bool:
        view = await stage.client.workflows.get(name)
        return key in [step.key for step in view.waits_for]

    await eventually(is_there, WITHIN, f"a wait for {key}")


async def test_a_timer_fires_a_log_later(stage: Stage, diary: str) -> None:
    async with stage.worker(), stage.orchestrator():
        name = await stage.client.dispatch(asleep(diary=diary, seconds=3.0))
        await reached(stage, name, State.SUSPENDED)
        for _ in range(2):
            await stage.turn_over()
        assert (await stage.client.wait(name, WITHIN)).result == "after"
    assert lines(diary) == ["after", "before"]


async def test_a_step_that_died_a_log_ago_is_still_an_error_at_its_await(
    stage: Stage, diary: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    async with stage.worker(), stage.orchestrator():
        name = await stage.client.dispatch(drained(diary=diary, gate=str(gate)))
        await reached(stage, name, State.SUSPENDED)
        await reached(stage, derived_ids.step_id(name, 0), State.DEAD)
        for _ in range(2):
            await stage.turn_over()
        gate.touch()
        assert (await stage.client.wait(name, WITHIN)).result == "builtins.ValueError"


async def test_a_dead_workflow_goes_on_from_its_memo_a_log_later(
    stage: Stage, diary: str, tmp_path: Path
) -> None:
    """Given one that died with a signal unread, and only its dead letter is young enough; then it
    is requeued, runs no step again, and takes the signal."""
    mended = tmp_path / "mended"
    async with stage.worker(), stage.orchestrator():
        name = await stage.client.dispatch(needs_mending(diary=diary, mended=str(mended)))
        for number in (1, 2):
            await stage.client.workflows.signal(name, "go", number)
        await reached(stage, name, State.DEAD)
        for _ in range(2):
            await stage.turn_over()
        mended.touch()
        await stage.client.retry(name)
        assert (await stage.client.wait(name, WITHIN)).result == "first 1 2"
        for _ in range(2):
            await stage.turn_over()
        assert not await stage.bus.count(
            stage.subjects.events_stream, stage.subjects.events("workflow")
        )
    assert lines(diary) == ["first", "inline"]


@on_both
async def test_a_memo_larger_than_an_event_is_carried_in_parts(stage: Stage) -> None:
    async with stage.worker():
        async with stage.orchestrator():
            name = await stage.client.dispatch(collected(pages=7, size=180_000))
            await reached(stage, name, State.SUSPENDED)
        for _ in range(3):
            await forget_positions(stage)
            async with stage.orchestrator():
                await stage.turn_over()
        events = {type(event) for _, event in (await stage.client.job(name)).events}
        assert events == {JobCarried, MemoCarried}
        async with stage.orchestrator() as orchestrator:
            await stage.client.workflows.signal(name, "go", 1)
            assert (await stage.client.wait(name, WITHIN)).result == list("abcdefg")
            assert not orchestrator.history.uncarried.names


async def test_a_memo_in_parts_is_given_only_whole(stage: Stage) -> None:
    """Given a pass that is cut off between carrying and removing, and a second orchestrator."""
    async with stage.worker():
        async with stage.orchestrator():
            name = await stage.client.dispatch(collected(pages=7, size=180_000))
            await reached(stage, name, State.SUSPENDED)
        before = (await stage.client.job(name)).record.workflow
        for _ in range(2):
            async with stage.orchestrator(), stage.orchestrator():
                await stage.turn_over()
        after = (await stage.client.job(name)).record.workflow
    assert before is not None and before == after


async def test_a_batch_that_ended_a_log_ago_is_still_the_result_of_its_step(
    stage: Stage, diary: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    async with stage.worker(), stage.worker(), stage.orchestrator():
        name = await stage.client.dispatch(mapped(diary=diary, gate=str(gate)))
        batch_id = derived_ids.step_id(name, 0)

        async def has_ended() -> bool:
            with suppress(NotFound):
                return (await stage.client.batches.show(batch_id)).state.ended
            return False

        await eventually(has_ended, WITHIN, "the end of the batch")
        for _ in range(2):
            await stage.turn_over()
        gate.touch()
        assert (await stage.client.wait(name, WITHIN)).result == 3
    assert lines(diary) == ["held", "member 0", "member 1", "member 2"]


async def test_shortening_that_is_cut_off_anywhere_loses_and_doubles_nothing(
    stage: Stage, diary: str, tmp_path: Path
) -> None:
    """Given passes that end halfway through carrying, and between carrying and removing."""
    gate = tmp_path / "gate"
    cut_short = CutShort(await stage.connect(), stage.subjects.events_stream)
    async with stage.worker():
        async with stage.orchestrator():
            name = await stage.client.dispatch(patient(diary=diary, gate=str(gate)))
            for number in (1, 2, 3):
                await stage.client.workflows.signal(name, "go", number, signal_id=str(number))
            await reached(stage, derived_ids.step_id(name, 0), State.COMPLETED)
            await reached(stage, derived_ids.step_id(name, 1), State.RUNNING)
        async with stage.orchestrator(cast("Bus", cut_short)):
            await stage.turn_over()
            assert cut_short.cuts == 4
            await stage.client.workflows.signal(name, "go", 1, signal_id="1")
            await stage.turn_over()
            gate.touch()
            ended = await stage.client.wait(name, WITHIN)
    assert ended.result["signals"] == [1, 2, 3]
    assert lines(diary) == ["first", "rate", "second"]
