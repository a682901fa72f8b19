"""Batches from their creation to their callbacks: a worker and an orchestrator, over both buses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests.buses import both, on_both
from tests.integration.counting import QUEUE, WITHIN, Stage
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.protocol import Outgoing
from penstock.events.batch import (
    BatchClosed,
    BatchCreated,
    BatchProgressed,
    Callback,
    Callbacks,
    Counts,
)
from penstock.events.envelope import encode
from penstock.events.graph import GraphStarted, GraphStep
from penstock.events.subjects import BadName
from penstock.jobs import Backoff, Call, Client, Context, JobType, SyncClient, job, registry
from penstock.jobs.batches.batch_record import BatchRecord, BatchState
from penstock.jobs.batches.outcome import Outcome
from penstock.jobs.dispatch.awaiting import awaiting
from penstock.jobs.errors import AlreadyDispatched, JobRefused
from penstock.jobs.event_store.event_log import append_if
from penstock.orchestrator.app import Orchestrator
from penstock.testing.memory.bus import MemoryBus

MENDED: set[int] = set()
"""Numbers with which `fail_if` does not fail any more."""


@job(queue=QUEUE)
def double(number: int) -> int:
    return 2 * number


@job(queue=QUEUE, tries=1)
def fail_if(number: int, bad: list[int]) -> None:
    if number in bad and number not in MENDED:
        raise ValueError(number)


@job(queue=QUEUE, tries=3, backoff=Backoff(first_seconds=0))
def fail_twice(context: Context) -> int:
    if context.attempt < 3:
        raise ValueError("too early")
    return context.attempt


@job(queue=QUEUE)
def spread(context: Context, count: int) -> list[str]:
    assert context.batch is not None
    first = context.batch.add(double(number=number) for number in range(count))
    return [*first, *context.batch.add([double(number=count)])]


@job(queue=QUEUE)
def has_batch(context: Context) -> bool:
    return context.batch is not None


@job(queue=QUEUE)
def tell(outcome: Outcome, what: str) -> list[Any]:
    return [what, outcome.state, outcome.counts.total]


@job(queue=QUEUE)
def announce(what: str) -> str:
    return what


JOBS: list[JobType[Any, Any]] = [
    double, fail_if, fail_twice, spread, has_batch, tell, announce,
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def known() -> Iterator[None]:
    registry.REGISTRY.update({each.name: each for each in JOBS})
    yield
    for each in JOBS:
        registry.REGISTRY.pop(each.name, None)


@pytest.fixture(autouse=True)
def nothing_mended() -> None:
    MENDED.clear()


@pytest.fixture(params=both("memory"))
async def stage(request: pytest.FixtureRequest, settings: MakeSettings) -> AsyncIterator[Stage]:
    async with Stage(request.param, settings) as found:
        yield found


# --- the straight way -----------------------------------------------------------------------------
async def test_a_batch_of_jobs_that_succeed(stage: Stage) -> None:
    await stage.at_work()
    batch_id = await stage.client.batches.create(
        [double(number=number) for number in range(1200)],
        title="doubles",
        then=awaiting(tell, "outcome", what="then"),
        catch=announce(what="catch"),
        finally_=awaiting(tell, "outcome", what="finally"),
    )
    record = await stage.ended(batch_id)
    assert (record.state, record.title) == (BatchState.COMPLETED, "doubles")
    assert record.counts == Counts(completed=1200)
    assert await stage.result(f"{batch_id}_then") == ["then", "completed", 1200]
    assert await stage.result(f"{batch_id}_finally") == ["finally", "completed", 1200]
    assert not await stage.exists(f"{batch_id}_catch")


async def test_an_empty_batch_completes(stage: Stage) -> None:
    await stage.at_work()
    batch_id = await stage.client.batches.create([], then=announce(what="nothing to do"))
    assert (await stage.ended(batch_id)).state is BatchState.COMPLETED
    assert await stage.result(f"{batch_id}_then") == "nothing to do"


async def test_a_job_that_is_retried_counts_once(stage: Stage) -> None:
    await stage.at_work()
    batch_id = await stage.client.batches.create([fail_twice(), double(number=1)])
    assert (await stage.ended(batch_id)).counts == Counts(completed=2)


async def test_a_job_of_its_own_has_no_batch(stage: Stage) -> None:
    await stage.at_work()
    assert await stage.result(await stage.client.dispatch(has_batch())) is False


# --- failures -------------------------------------------------------------------------------------
async def test_one_failure_fails_a_batch_that_allows_none(stage: Stage) -> None:
    async with stage.orchestrator():
        batch_id = await stage.client.batches.create(
            [fail_if(number=number, bad=[0]) for number in range(300)],
            then=announce(what="then"),
            catch=awaiting(tell, "outcome", what="catch"),
        )
        async with stage.worker():
            record = await stage.ended(batch_id)
            assert record.state is BatchState.FAILED
            assert record.reason == "too many failures: 1 of at most 0"
            assert record.counts.failed == 1
            assert record.counts.total == 300
            assert await stage.result(f"{batch_id}_catch") == ["catch", "failed", 300]
        assert not await stage.exists(f"{batch_id}_then")


@pytest.mark.parametrize(
    ("allowed", "state"), [(2, BatchState.COMPLETED), ("20%", BatchState.COMPLETED),
                           (1, BatchState.FAILED), ("19.9%", BatchState.FAILED)],
)  # fmt: skip
async def test_failures_up_to_a_number_or_share(
    stage: Stage, allowed: int | str, state: BatchState
) -> None:
    await stage.at_work()
    batch_id = await stage.client.batches.create(
        [fail_if(number=number, bad=[3, 9]) for number in range(10)], allowed_failures=allowed
    )
    record = await stage.ended(batch_id)
    assert (record.state, record.counts.failed) == (state, 2)


@pytest.mark.parametrize("wrong", [-1, "5", "101%", "-1%", "many%", "%"])
async def test_a_threshold_that_is_none_is_refused(stage: Stage, wrong: int | str) -> None:
    if wrong == "5":  # a number as text is one
        assert await stage.client.batches.create([], allowed_failures=wrong)
        return
    with pytest.raises(ValueError, match="a number from 0 on, or a share such as '5%'"):
        await stage.client.batches.create([], allowed_failures=wrong)


async def test_the_failed_run_again_in_their_places(stage: Stage) -> None:
    await stage.at_work()
    batch_id = await stage.client.batches.create(
        [fail_if(number=number, bad=[1, 2]) for number in range(5)],
        allowed_failures=5,
        then=awaiting(tell, "outcome", what="then"),
    )
    assert (await stage.ended(batch_id)).counts == Counts(completed=3, failed=2)
    assert await stage.result(f"{batch_id}_then")
    MENDED.add(1)
    first = await stage.client.batches.retry_failed(batch_id)
    assert len(first) == 2
    second = [job_id for job_id in first if job_id.endswith("_2")]
    assert (await stage.ended(batch_id)).counts == Counts(completed=4, failed=1)
    MENDED.add(2)
    assert await stage.client.batches.failed(batch_id) == second
    assert await stage.client.batches.retry_failed(batch_id) == second
    record = await stage.ended(batch_id)
    assert (record.counts, record.round) == (Counts(completed=5), 2)
    assert await stage.result(f"{batch_id}_then_1") == ["then", "completed", 5]
    assert await stage.result(f"{batch_id}_then_2") == ["then", "completed", 5]
    with pytest.raises(JobRefused, match="has failed"):
        await stage.client.batches.retry_failed(batch_id)


async def test_a_batch_that_failed_completes_when_its_failed_jobs_do(stage: Stage) -> None:
    await stage.at_work()
    calls = [fail_if(number=number, bad=[0, 1, 2]) for number in range(3)]
    batch_id = await stage.client.batches.create(calls, allowed_failures=1)
    assert (await stage.ended(batch_id)).state is BatchState.FAILED
    MENDED.update({0, 1, 2})
    assert await stage.client.batches.retry_failed(batch_id, cancelled=True)
    record = await stage.ended(batch_id)
    assert (record.state, record.counts) == (BatchState.COMPLETED, Counts(completed=3))


# --- cancelling -----------------------------------------------------------------------------------
@on_both
async def test_cancelling_a_batch_cancels_what_has_not_ended(stage: Stage) -> None:
    async with stage.orchestrator():
        batch_id = await stage.client.batches.create(
            [double(number=number) for number in range(250)],
            then=announce(what="then"),
            catch=announce(what="catch"),
            finally_=awaiting(tell, "outcome", what="finally"),
        )
        assert (await stage.client.batches.cancel(batch_id, "not today")).state in (
            BatchState.STOPPING, BatchState.CANCELLED,
        )  # fmt: skip
        record = await stage.ended(batch_id)
        assert (record.state, record.reason) == (BatchState.CANCELLED, "not today")
        assert record.counts == Counts(cancelled=250)
        async with stage.worker():
            assert await stage.result(f"{batch_id}_finally") == ["finally", "cancelled", 250]
        assert not await stage.exists(f"{batch_id}_then")
        assert not await stage.exists(f"{batch_id}_catch")


async def test_cancelling_after_the_end_changes_nothing(stage: Stage) -> None:
    await stage.at_work()
    batch_id = await stage.client.batches.create([double(number=1)])
    await stage.ended(batch_id)
    assert (await stage.client.batches.cancel(batch_id)).state is BatchState.COMPLETED


# --- adding ---------------------------------------------------------------------------------------
async def test_a_batch_that_is_open_does_not_end(stage: Stage) -> None:
    await stage.at_work()
    async with stage.client.batches.open() as batch:
        [first] = await batch.add([double(number=1)])
        assert await stage.result(first) == 2
        [second] = await batch.add([double(number=2)])
        assert await stage.result(second) == 4
        assert (await stage.client.batches.show(batch.id)).state is BatchState.OPEN
    assert (await stage.ended(batch.id)).counts == Counts(completed=2)
    with pytest.raises(JobRefused, match="is completed: no jobs can be added"):
        await stage.client.batches.add(batch.id, [double(number=3)])


async def test_a_batch_whose_filling_fails_is_cancelled(stage: Stage) -> None:
    await stage.at_work()
    with pytest.raises(KeyError):
        async with stage.client.batches.open() as batch:
            raise KeyError("table")
    record = await stage.ended(batch.id)
    assert (record.state, record.reason) == (
        BatchState.CANCELLED, "adding its jobs failed: KeyError('table')",
    )  # fmt: skip


async def test_a_job_adds_to_its_own_batch_after_it_was_closed(stage: Stage) -> None:
    await stage.at_work()
    batch_id = await stage.client.batches.create([spread(count=20)])
    assert (await stage.ended(batch_id)).counts == Counts(completed=22)


async def test_a_batch_left_open_is_given_up(stage: Stage) -> None:
    await stage.at_work()
    await stage.client.batches._begin("left", "", 0, (None, None, None), 0.5)
    await stage.client.batches.add("left", [double(number=1)])
    record = await stage.ended("left")
    assert (record.state, record.cause) == (BatchState.FAILED, "abandoned")
    assert record.counts == Counts(completed=1)


async def test_creating_again_goes_on_where_it_stopped(stage: Stage) -> None:
    calls = [double(number=number) for number in range(700)]
    await stage.client.batches._begin("nightly", "", 0, (None, None, None), 60)
    await stage.client.batches.add("nightly", calls[:650], key="nightly")  # killed here
    await stage.client.batches.create(calls, batch_id="nightly")
    await stage.at_work()
    assert (await stage.ended("nightly")).counts == Counts(completed=700)
    with pytest.raises(AlreadyDispatched):
        await stage.client.batches.create(calls, batch_id="nightly")


@pytest.mark.parametrize("wrong", ["a.b", "a" * 37, "a_12345678_1", "x_step_1"])
async def test_a_name_that_cannot_be_a_batch(stage: Stage, wrong: str) -> None:
    with pytest.raises(BadName):
        await stage.client.batches.create([], batch_id=wrong)


async def test_a_call_that_is_refused_cancels_the_batch(stage: Stage) -> None:
    await stage.at_work()

    def calls() -> Iterator[Call]:
        yield from (double(number=number) for number in range(600))
        raise KeyError("orders")

    with pytest.raises(KeyError):
        await stage.client.batches.create(calls(), batch_id="nightly")
    record = await stage.ended("nightly")
    assert (record.state, record.counts.total) == (BatchState.CANCELLED, 500)


# --- orchestrators that come, go and are several --------------------------------------------------
async def test_what_happened_while_no_orchestrator_ran_is_counted(stage: Stage) -> None:
    async with stage.worker():
        batch_id = await stage.client.batches.create(
            [double(number=number) for number in range(50)], finally_=announce(what="late")
        )
        async with stage.orchestrator():
            assert (await stage.ended(batch_id)).counts == Counts(completed=50)
            assert await stage.result(f"{batch_id}_finally") == "late"


async def test_an_orchestrator_goes_on_where_another_stopped(stage: Stage) -> None:
    async with stage.client.batches.open() as batch:
        await batch.add([double(number=number) for number in range(40)])
        async with stage.worker():
            async with stage.orchestrator() as first:
                await eventually(lambda: _completed(first, batch.id) == 40, WITHIN)
            await batch.add([double(number=number) for number in range(40)])
            async with stage.orchestrator() as second:
                await eventually(lambda: _completed(second, batch.id) == 80, WITHIN)
                await stage.client.batches.close(batch.id)
                assert (await stage.ended(batch.id)).counts == Counts(completed=80)


def _completed(orchestrator: Orchestrator, batch_id: str) -> int:
    found: Any = orchestrator.workflows.unfinished.get(("batch", batch_id))
    return found.tally.counts.completed if found else 0


async def test_two_orchestrators_end_a_batch_once(stage: Stage) -> None:
    async with stage.orchestrator(), stage.orchestrator(), stage.worker():
        batch_id = await stage.client.batches.create(
            [fail_if(number=number, bad=[5]) for number in range(400)],
            allowed_failures=1,
            then=awaiting(tell, "outcome", what="then"),
        )
        assert (await stage.ended(batch_id)).counts == Counts(completed=399, failed=1)
        assert await stage.result(f"{batch_id}_then") == ["then", "completed", 400]
    told = await stage.bus.history(stage.subjects.events_stream, stage.subjects.events("batch"))
    names = [stored.subject.rpartition(".")[2] for stored in told]
    assert names.count("BatchCompleted") == 1
    dispatched = stage.subjects.events("job", f"{batch_id}_then", "JobDispatched")
    assert len(await stage.bus.history(stage.subjects.events_stream, dispatched)) == 1


async def test_nothing_is_kept_of_a_batch_that_has_ended(stage: Stage) -> None:
    async with stage.worker(), stage.orchestrator() as orchestrator:
        batch_id = await stage.client.batches.create([double(number=1)])
        await stage.ended(batch_id)
        await eventually(lambda: not orchestrator.workflows.unfinished, WITHIN)
    assert not await stage.bus.count(
        stage.subjects.state_stream, stage.subjects.state("batch", "*")
    )


async def test_what_cannot_be_dispatched_does_no_harm_to_others(stage: Stage) -> None:
    """Events that no client of ours wrote."""
    rubbish = Callbacks(finally_=Callback(payload=b"rubbish"))
    events: list[Any] = [
        BatchCreated(batch_id="a", callbacks=rubbish),
        BatchClosed(batch_id="a"),
        GraphStarted(graph_id="b", steps=(GraphStep(name="s", payload=b"rubbish"),)),
        GraphStarted(
            graph_id="c",
            steps=(GraphStep(name="s", payload=encode_payload(double(number=1)), takes={"x": 7}),),
        ),
    ]
    for event in events:
        await stage.bus.append(Outgoing(stage.subjects.event(event), encode(event)))
    await stage.at_work()
    batch_id = await stage.client.batches.create([double(number=1)])
    assert (await stage.ended(batch_id)).state is BatchState.COMPLETED
    for graph, reason in (("b", "cannot be dispatched"), ("c", "no job of id 'c_step_7'")):
        assert reason in (await stage.client.graphs.wait(graph, WITHIN)).reason


def encode_payload(call: Call) -> bytes:
    return Client(MemoryBus()).dispatcher.prepare(call, "any").payload


async def test_an_event_that_may_not_follow_is_passed_over(stage: Stage) -> None:
    async with stage.orchestrator():
        async with stage.client.batches.open() as batch:
            await batch.add([double(number=1)])
        record = await stage.client.batches.show(batch.id)
        late = BatchProgressed(batch_id=batch.id, counts=Counts(completed=77))
        assert await append_if(stage.bus, stage.subjects, late, record.sequence)
        async with stage.worker():
            assert (await stage.ended(batch.id)).counts == Counts(completed=1)


async def test_the_same_verbs_without_asyncio(settings: MakeSettings) -> None:
    async with Stage("nats", settings) as stage:
        await stage.at_work()

        def whole() -> tuple[BatchRecord, list[Any]]:
            with SyncClient(stage.settings) as client:
                with client.batches.open(allowed_failures=1) as batch:
                    batch.add([fail_if(number=1, bad=[1])])
                    client.batches.add(batch.id, [double(number=1)])
                record = client.batches.wait(batch.id, WITHIN)
                ends = client.batches.ended(batch.id)
                failed = [at.job_id for at, how in ends.items() if how == "failed"]
                MENDED.add(1)
                assert client.batches.retry_failed(batch.id) == failed
                assert client.batches.wait(batch.id, WITHIN).counts == Counts(completed=2)
                chain = client.graphs.chain([double(number=2), awaiting(double, "number")])
                client.graphs.wait(chain, WITHIN)
                steps = ("1 double", "2 double")
                return record, [client.graphs.step(chain, name).result for name in steps]

        record, results = await asyncio.to_thread(whole)
        assert record.counts == Counts(completed=1, failed=1)
        assert results == [4, 8]
