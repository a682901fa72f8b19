"""Batches and chains on a real broker, with real workers and orchestrators that are killed."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.integration import dispatching
from tests.integration.counted_jobs import count, fail_for_good, spread_and_die, told
from tests.integration.crew import Crew
from tests.integration.orchestrating import Start
from tests.integration.sample_jobs import QUEUE, hold, note
from tests.waiting import eventually

from penstock.bus.protocol import Outgoing
from penstock.events.batch import Counts
from penstock.jobs.batches.batch_record import BatchRecord, BatchState
from penstock.jobs.dispatch.awaiting import awaiting
from penstock.jobs.queues import queue_messages
from penstock.jobs.workflows.graph_record import GraphState

WITHIN = 30.0
MODULES = {"modules": ["tests.integration.sample_jobs", "tests.integration.counted_jobs"]}
KNOWN = pytest.mark.parametrize("crew", [{"jobs": MODULES}], indirect=True)


async def ended(crew: Crew, batch_id: str) -> BatchRecord:
    """The batch at its end; its counts must be those of a recount."""
    record = await crew.client.batches.wait(batch_id, WITHIN)
    how = list((await crew.client.batches.ended(batch_id)).values())
    recount = {name: how.count(name) for name in ("completed", "failed", "cancelled")}
    assert record.counts == Counts(**recount)
    return record


def call_back(crew: Crew, name: str) -> Any:
    return awaiting(told, "outcome", diary=crew.diary.path, name=name)


# --- the orchestrator dies ------------------------------------------------------------------------
@KNOWN
@pytest.mark.parametrize(
    "doom",
    [
        ("BEFORE", r"\.BatchCompleted$"),
        ("AFTER", r"\.BatchCompleted$"),
        ("BEFORE", r"_then\.JobDispatched$"),
        ("AFTER", r"_then\.JobDispatched$"),
        ("AFTER", rf"\.jobs\.{QUEUE}$"),
        ("AFTER", r"\.BatchProgressed$"),
    ],
    ids=lambda doom: "-".join(doom).replace("\\.", ""),
)
async def test_an_orchestrator_killed_around_the_end_of_a_batch(
    crew: Crew, orchestrator: Start, doom: tuple[str, str]
) -> None:
    first = orchestrator(*doom)
    calls = [hold(diary=crew.diary.path, name="slow", gate=crew.gate())]
    calls += [count(number=number) for number in range(200)]
    batch_id = await crew.client.batches.create(calls, then=call_back(crew, "then"))
    crew.hire(), crew.hire()
    await eventually(lambda: crew.diary.lines("slow"), WITHIN)
    if "Progressed" in doom[1]:
        await eventually(lambda: first.exit_code is not None, WITHIN, "a killed orchestrator")
    crew.open()
    await eventually(lambda: first.exit_code is not None, WITHIN, "a killed orchestrator")
    orchestrator()
    assert (await ended(crew, batch_id)).counts == Counts(completed=201)
    await crew.diary.wait("then", "completed-201", within=WITHIN)
    await crew.emptied()
    assert crew.diary.told("then") == ["completed-201"]


@KNOWN
async def test_a_chain_whose_orchestrator_is_killed_before_the_next_step(
    crew: Crew, orchestrator: Start
) -> None:
    first = orchestrator("BEFORE", r"_step_1\.JobDispatched$")
    crew.hire()
    steps = [note(diary=crew.diary.path, name=name) for name in ("a", "b", "c")]
    chain = await crew.client.graphs.chain(steps)
    await eventually(lambda: first.exit_code is not None, WITHIN, "a killed orchestrator")
    orchestrator()
    record = await crew.client.graphs.wait(chain, WITHIN)
    assert record.state is GraphState.COMPLETED
    assert [line.name for line in crew.diary.lines()] == ["a", "b", "c"]


@KNOWN
async def test_counts_are_exact_with_two_orchestrators_and_jobs_delivered_again(
    crew: Crew, orchestrator: Start
) -> None:
    """One job in twenty has a second message in its queue, some with workers killed over them."""
    orchestrator(), orchestrator()
    crew.hire(), crew.hire()
    calls = [count(number=number) for number in range(3000)]
    batch_id = await crew.client.batches.create(calls, then=call_back(crew, "then"))
    for job_id in random.Random(7).sample(await _jobs(crew, batch_id), 150):
        view = await crew.client.job(job_id)
        headers = queue_messages.headers(job_id, view.events[0][0], 1, {})
        message = Outgoing(crew.subjects.queue(QUEUE), view.record.payload, headers)
        await crew.bus.append(message)
    crew.workers[0].signal(9)
    assert (await ended(crew, batch_id)).counts == Counts(completed=3000)
    await crew.diary.wait("then", "completed-3000", within=WITHIN)


async def _jobs(crew: Crew, batch_id: str) -> list[str]:
    counted = await crew.bus.count(
        crew.subjects.events_stream, crew.subjects.events("job", "*", "JobDispatched")
    )
    ids = sorted(subject.split(".")[-2] for subject in counted)
    return [each for each in ids if each.startswith(f"{batch_id}_")]


# --- those who dispatch die -----------------------------------------------------------------------
@KNOWN
async def test_a_batch_whose_creator_was_killed_is_created_again_and_complete(
    crew: Crew, orchestrator: Start
) -> None:
    orchestrator()
    crew.hire()
    creator = dispatching.start(crew.settings, "nightly", 2000, r"_999\.JobDispatched$")
    await eventually(lambda: creator.exit_code is not None, WITHIN, "a killed creator")
    assert (await crew.client.batches.show("nightly")).state is BatchState.OPEN
    calls = [count(number=number) for number in range(2000)]
    await crew.client.batches.create(calls, batch_id="nightly", open_seconds=3)
    assert (await ended(crew, "nightly")).counts == Counts(completed=2000)


@KNOWN
async def test_a_batch_whose_creator_was_killed_and_never_comes_back_is_given_up(
    crew: Crew, orchestrator: Start
) -> None:
    orchestrator()
    crew.hire()
    creator = dispatching.start(crew.settings, "nightly", 2000, r"_999\.JobDispatched$")
    await eventually(lambda: creator.exit_code is not None, WITHIN, "a killed creator")
    record = await ended(crew, "nightly")
    assert (record.state, record.cause) == (BatchState.FAILED, "abandoned")
    stored = await _jobs(crew, "nightly")  # chunks are sent beside each other: not always 1000
    assert record.counts.total == len(stored)
    assert 0 < len(stored) < 2000


@KNOWN
async def test_a_worker_killed_while_its_job_adds_to_the_batch(
    crew: Crew, orchestrator: Start
) -> None:
    orchestrator()
    crew.hire(), crew.hire()
    spread = spread_and_die(diary=crew.diary.path, name="root", jobs=600)
    batch_id = await crew.client.batches.create([spread])
    assert (await ended(crew, batch_id)).counts == Counts(completed=601)
    assert crew.diary.told("root") == ["begun", "begun"]


# --- jobs that fail, jobs that are cancelled ------------------------------------------------------
@KNOWN
async def test_a_job_that_is_retried_and_finally_dead_counts_as_one_failure(
    crew: Crew, orchestrator: Start
) -> None:
    orchestrator()
    crew.hire()
    bad = fail_for_good(diary=crew.diary.path, name="bad")
    batch_id = await crew.client.batches.create(
        [bad, count(number=1)], allowed_failures=1, then=call_back(crew, "then")
    )
    assert (await ended(crew, batch_id)).counts == Counts(completed=1, failed=1)
    assert crew.diary.told("bad") == ["ran", "ran"]
    await crew.diary.wait("then", "completed-2", within=WITHIN)


@KNOWN
async def test_cancelling_a_batch_stops_the_jobs_that_run(crew: Crew, orchestrator: Start) -> None:
    orchestrator()
    crew.hire(), crew.hire()
    held = [
        hold(diary=crew.diary.path, name=name, gate=crew.gate()) for name in ("a", "b", "c", "d")
    ]
    batch_id = await crew.client.batches.create(held, finally_=call_back(crew, "finally"))
    await eventually(lambda: len(crew.diary.lines()) == 2, WITHIN, "two jobs that run")
    await crew.client.batches.cancel(batch_id, "not today")
    record = await ended(crew, batch_id)
    assert (record.state, record.counts) == (BatchState.CANCELLED, Counts(cancelled=4))
    await crew.diary.wait("finally", "cancelled-4", within=WITHIN)
    stopped = [line for line in crew.diary.lines() if line.what == "stopped"]
    assert len(stopped) == 2


@KNOWN
async def test_an_orchestrator_killed_while_it_cancels(crew: Crew, orchestrator: Start) -> None:
    first = orchestrator("AFTER", r"\.JobCancelled$")
    calls = [count(number=number) for number in range(500)]
    batch_id = await crew.client.batches.create(calls)
    await crew.client.batches.cancel(batch_id)
    await eventually(lambda: first.exit_code is not None, WITHIN, "a killed orchestrator")
    orchestrator()
    record = await ended(crew, batch_id)
    assert (record.state, record.counts) == (BatchState.CANCELLED, Counts(cancelled=500))
