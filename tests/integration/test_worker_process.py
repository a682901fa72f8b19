"""A worker process on a real broker: jobs run, fail, go again, are cancelled, run too long."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest
from tests.integration.crew import Crew
from tests.integration.sample_jobs import (
    QUEUE,
    advance,
    fail,
    hold,
    hold_unasked,
    need,
    note,
    note_soon,
    overrun,
    send_note,
    stubborn,
    stubborn_overrun,
)
from tests.waiting import eventually

from penstock.bus.protocol import Outgoing
from penstock.events.envelope import utc_now
from penstock.jobs import Call, JobType, SyncClient
from penstock.jobs.lifecycle import State
from penstock.jobs.queues.queue_messages import DeadLetter
from penstock.jobs.retry import Retries
from penstock.worker.running.ending import UNRESPONSIVE


async def test_plain_and_async_functions_run(crew: Crew) -> None:
    crew.hire()
    diary = crew.diary.path
    plain = await crew.client.dispatch(note(diary=diary, name="a"))
    soon = await crew.client.dispatch(note_soon(diary=diary, name="b"))
    sender = await crew.client.dispatch(send_note(diary=diary, name="c"))
    later = await crew.client.dispatch(note(diary=diary, name="d"), delay=timedelta(seconds=0.3))
    assert (await crew.ended(plain)).result == "a"
    assert (await crew.ended(soon)).result == ["b", soon]
    sent = (await crew.ended(sender)).result
    assert (await crew.ended(sent)).result == "c"
    record = (await crew.ended(later)).record
    assert record.started_at is not None
    assert record.started_at >= record.available_at - timedelta(milliseconds=10)
    assert crew.diary.count("ran") == dict.fromkeys("abcd", 1)
    await crew.emptied()


async def test_a_client_without_a_loop(crew: Crew) -> None:
    crew.hire()

    def ask() -> tuple[str, list[str]]:
        with SyncClient(crew.settings) as client:
            calls = [note(diary=crew.diary.path, name=name) for name in "ab"]
            first = client.wait(client.dispatch(calls[0]), 10).result
            return first, [client.wait(each, 10).result for each in client.dispatch_many(calls)]

    assert await asyncio.to_thread(ask) == ("a", ["a", "b"])


async def test_progress_is_recorded_while_it_runs(crew: Crew) -> None:
    crew.hire()
    call = advance(diary=crew.diary.path, name="a", gate=crew.gate(), total=5)
    job_id = await crew.client.dispatch(call)

    async def told() -> bool:
        return (await crew.client.job(job_id)).record.done == 5

    await eventually(told, 10, "progress")
    assert (await crew.client.job(job_id)).record.total == 5
    crew.open()
    assert (await crew.ended(job_id)).state is State.COMPLETED


async def test_a_retry_is_kept_by_the_broker_and_holds_no_worker(crew: Crew) -> None:
    worker = crew.hire()
    job_id = await crew.client.dispatch(fail(diary=crew.diary.path, name="a", times=1))
    view = await crew.reached(job_id, State.RETRYING)
    left = (view.record.available_at - utc_now()).total_seconds()
    assert 0 < left <= 0.4
    subject = crew.subjects.schedule(QUEUE, job_id)
    schedule = await eventually(
        lambda: crew.bus.last(crew.subjects.jobs_stream, subject), 1, "a schedule"
    )
    assert schedule.body == view.record.payload
    await crew.emptied(within=1)
    assert (await crew.client.job(job_id)).state is State.RETRYING
    view = await crew.ended(job_id)
    assert (view.result, view.attempts) == (2, 2)
    assert view.record.worker == worker.name
    assert crew.diary.told("a") == ["attempt-1", "attempt-2"]
    await crew.emptied()


async def test_the_last_failure_is_a_dead_letter_that_runs_again(crew: Crew) -> None:
    crew.hire()
    missing = crew.folder / "table"
    call = need(diary=crew.diary.path, name="a", path=str(missing))
    job_id = await crew.client.dispatch(call, tags=["sales"])
    view = await crew.ended(job_id)
    assert (view.state, view.attempts) == (State.DEAD, 1)
    assert view.error.kind == "builtins.FileNotFoundError"
    assert "in need" in view.error.traceback

    async def lies_there() -> DeadLetter | None:
        subject = crew.subjects.dead(QUEUE, job_id)
        stored = await crew.bus.last(crew.subjects.dead_stream, subject)
        return msgspec.json.decode(stored.body, type=DeadLetter) if stored else None

    letter = await eventually(lies_there, 5, "a dead letter")
    assert (letter.job_id, letter.function, letter.attempts) == (job_id, need.name, 1)
    assert (letter.error, letter.tags) == (view.error, ("sales",))
    assert letter.payload == view.record.payload

    missing.write_text("rows", "utf-8")
    await crew.client.retry(job_id)
    again = await crew.ended(job_id)
    assert (again.state, again.result, again.record.life) == (State.COMPLETED, "rows", 2)
    assert await lies_there() is None
    await crew.emptied()


@pytest.mark.parametrize(
    ("function", "arguments", "kind"),
    [
        ("os.system", {"command": "true"}, "unknown-job"),
        (note.name, {"diary": 7, "name": "a"}, "bad-arguments"),
        (note.name, {"diary": "x"}, "bad-arguments"),
    ],
)
async def test_a_call_that_does_not_fit_here_is_dead_and_not_run(
    crew: Crew, function: str, arguments: dict[str, object], kind: str
) -> None:
    """As from a client of another version: the worker knows what it may run."""
    worker = crew.hire()
    theirs: JobType[..., None] = JobType(
        lambda: None,
        name=function,
        queue=QUEUE,
        tries=3,
        timeout_seconds=0,
        retries=Retries(),
        tags=(),
    )
    job_id = await crew.client.dispatch(Call(theirs, msgspec.msgpack.encode(arguments)))
    view = await crew.ended(job_id)
    assert (view.state, view.attempts, view.error.kind) == (State.DEAD, 0, kind)
    good = await crew.client.dispatch(note(diary=crew.diary.path, name="b"))
    assert (await crew.ended(good)).record.worker == worker.name
    assert [line.name for line in crew.diary.lines()] == ["b"]
    await crew.emptied()


async def test_rubbish_is_put_aside_and_the_worker_goes_on(crew: Crew) -> None:
    worker = crew.hire()
    rubbish = Outgoing(crew.subjects.queue(QUEUE), b"rubbish", {"Penstock-Job": "x"})
    sequence = await crew.bus.append(rubbish)
    job_id = await crew.client.dispatch(note(diary=crew.diary.path, name="a"))
    assert (await crew.ended(job_id)).record.worker == worker.name
    [stored] = await crew.bus.history(crew.subjects.dead_stream, crew.subjects.dead(QUEUE, "*"))
    letter = msgspec.json.decode(stored.body, type=DeadLetter)
    assert (letter.job_id, letter.error.kind) == (f"message-{sequence}", "malformed")
    assert letter.payload == b"rubbish"


# --- cancelling -----------------------------------------------------------------------------------
async def test_a_cancelled_job_that_has_not_begun_never_runs(crew: Crew) -> None:
    diary = crew.diary.path
    cancelled = await crew.client.dispatch(note(diary=diary, name="cancelled"))
    delayed = await crew.client.dispatch(note(diary=diary, name="delayed"), delay=0.2)
    for each in (cancelled, delayed):
        assert (await crew.client.cancel(each)).state is State.CANCELLED
    crew.hire()
    last = await crew.client.dispatch(note(diary=diary, name="last"), delay=0.6)
    await crew.ended(last)
    assert [line.name for line in crew.diary.lines()] == ["last"]
    await crew.emptied()


async def test_a_running_job_that_looks_stops_itself(crew: Crew) -> None:
    worker = crew.hire()
    call = hold(diary=crew.diary.path, name="a", gate=crew.gate())
    job_id = await crew.client.dispatch(call)
    await crew.diary.wait("a", "begun")
    assert (await crew.client.cancel(job_id)).state is State.CANCELLED
    await crew.diary.wait("a", "begun", "stopped", within=2)
    after = await crew.client.dispatch(note(diary=crew.diary.path, name="b"))
    assert (await crew.ended(after)).record.worker == worker.name
    assert (await crew.story(job_id))[-1] == "JobCancelled"
    await crew.emptied()


async def test_a_running_job_that_does_not_look_is_interrupted(crew: Crew) -> None:
    worker = crew.hire()
    call = hold_unasked(diary=crew.diary.path, name="a", gate=crew.gate())
    job_id = await crew.client.dispatch(call)
    await crew.diary.wait("a", "begun")
    await crew.client.cancel(job_id)
    await crew.diary.wait("a", "begun", "interrupted-Cancelled", within=3)
    after = await crew.client.dispatch(note(diary=crew.diary.path, name="b"))
    assert (await crew.ended(after)).record.worker == worker.name
    assert worker.exit_code is None


async def test_a_cancelled_job_that_does_not_stop_takes_its_process_along(crew: Crew) -> None:
    worker = crew.hire()
    call = stubborn(diary=crew.diary.path, name="a", gate=crew.gate())
    job_id = await crew.client.dispatch(call)
    await crew.diary.wait("a", "begun")
    await crew.client.cancel(job_id)
    assert await worker.ended(5) == UNRESPONSIVE
    assert crew.diary.told("a") == ["begun", "shrugged-Cancelled"]
    crew.hire()
    after = await crew.client.dispatch(note(diary=crew.diary.path, name="b"))
    await crew.ended(after)
    assert crew.diary.told("a") == ["begun", "shrugged-Cancelled"]
    await crew.emptied()


# --- running too long -----------------------------------------------------------------------------
async def test_an_attempt_that_takes_too_long_is_ended_and_goes_again(crew: Crew) -> None:
    worker = crew.hire()
    call = overrun(diary=crew.diary.path, name="a", gate=crew.gate())
    job_id = await crew.client.dispatch(call)
    view = await crew.reached(job_id, State.RETRYING)
    assert view.error.kind == "timeout"
    assert view.error.message == "ran longer than its 0.3 s"
    assert 0.29 <= (view.record.run_seconds or 0) < 1.5  # two clocks
    crew.open()
    view = await crew.ended(job_id)
    assert (view.state, view.result, view.record.worker) == (State.COMPLETED, 2, worker.name)


async def test_one_that_does_not_stop_then_takes_its_process_along(crew: Crew) -> None:
    worker = crew.hire()
    call = stubborn_overrun(diary=crew.diary.path, name="a", gate=crew.gate())
    job_id = await crew.client.dispatch(call)
    assert await worker.ended(5) == UNRESPONSIVE
    view = await crew.client.job(job_id)
    assert (view.state, view.error.kind) == (State.DEAD, "timeout")
    assert await crew.bus.last(crew.subjects.dead_stream, crew.subjects.dead(QUEUE, job_id))
    await crew.emptied()


@pytest.mark.parametrize(
    "crew",
    [{"pools": {QUEUE: {"kind": "group", "queues": ["first", QUEUE, "last"], "tries": 1}}}],
    indirect=True,
)
async def test_a_group_takes_its_queues_in_order(crew: Crew) -> None:
    diary = crew.diary.path
    for queue in ("last", QUEUE, "first"):
        for n in range(3):
            call = note(diary=diary, name=f"{queue}-{n}")
            await crew.client.dispatch(call, queue=queue)
    crew.hire()
    await eventually(lambda: len(crew.diary.lines()) == 9, 10, "nine jobs")
    order = [line.name.split("-")[0] for line in crew.diary.lines()]
    assert order == ["first"] * 3 + [QUEUE] * 3 + ["last"] * 3
    late = await crew.client.dispatch(note(diary=diary, name="late"), queue="last")
    await crew.ended(late)
