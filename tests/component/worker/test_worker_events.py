"""What the events of an attempt say, so that one event is enough to act on."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.component.worker.given import QUEUE, Stage, settings
from tests.component.worker.test_worker_runner import held

from penstock.events.job import (
    JobCompleted,
    JobDead,
    JobFailed,
    JobProgressed,
    JobRetrying,
    JobStarted,
)
from penstock.jobs import Context, job
from penstock.jobs.job_view import JobView
from penstock.jobs.payloads import payload
from penstock.worker.claiming.claimed_job import LiveRun

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@job(name="events-test.charge", queue=QUEUE, tries=2, backoff=(0.01,), timeout_seconds=60)
def charge(fails: bool = False) -> None:
    if fails:
        raise ValueError("no money")


@job(name="events-test.count", queue=QUEUE)
def count(context: Context) -> None:
    context.progress(1, 2)


@pytest.fixture
def stage() -> Stage:
    return Stage(settings())


def events(view: JobView, kind: type) -> list:
    return [event for _, event in view.events if isinstance(event, kind)]


async def test_each_event_of_an_attempt_names_the_function(stage) -> None:
    async with stage.worker():
        good = await stage.client.dispatch(charge())
        view = await stage.ended(good)
        for kind in (JobStarted, JobCompleted):
            assert [event.function for event in events(view, kind)] == ["events-test.charge"]
        bad = await stage.client.dispatch(charge(fails=True))
        view = await stage.ended(bad)
    for kind in (JobFailed, JobRetrying, JobDead):
        assert {event.function for event in events(view, kind)} == {"events-test.charge"}
    [dead] = events(view, JobDead)
    [*_, failed] = events(view, JobFailed)
    assert dead.attempt == failed.attempt
    assert [event.will_retry for event in events(view, JobFailed)] == [True, False]


async def test_a_view_has_what_was_asked_for_and_what_it_took(stage) -> None:
    async with stage.worker():
        job_id = await stage.client.dispatch(charge(), tags=["night"])
        view = await stage.ended(job_id)
    assert (view.id, view.function, view.queue) == (job_id, "events-test.charge", QUEUE)
    assert (view.priority, view.tags, view.batch_id) == ("normal", ("night",), "")
    assert view.timeout_seconds == 60
    assert view.dispatched_at <= view.reserved_at <= view.finished_at
    assert view.worker.startswith(QUEUE)
    assert view.run_seconds >= 0
    assert view.cpu_seconds == events(view, JobCompleted)[0].cpu_seconds
    assert view.trace_id == ""


async def test_a_member_of_a_batch_names_it(stage) -> None:
    async with stage.client.batches.open() as batch:
        [job_id] = await batch.add([charge()])
    assert (await stage.client.job(job_id)).batch_id == batch.id


def test_the_trace_of_a_job_is_that_of_its_dispatch(stage) -> None:
    view = JobView(record=None, events=(), traceparent=TRACE)  # type: ignore[arg-type]
    assert view.trace_id == "0af7651916cd43dd8448eb211c80319c"


async def test_progress_is_recorded_ever_less_often(stage, monkeypatch) -> None:
    now = timedelta()
    monkeypatch.setattr(LiveRun, "running_seconds", lambda _: now.total_seconds())
    async with stage.worker() as worker:
        recorder = worker._parts.recorder
        job_id = await stage.client.dispatch(count())
        await stage.ended(job_id)
        record = (await stage.client.job(job_id)).record
        running = held(lambda: None)
        running.payload, running.sequence = payload.decode(record.payload), record.sequence
        for second in range(3_600):
            now = timedelta(seconds=second)
            running.live.progress = (second, 3_600)
            await recorder.progress(running)
    progressed = events(await stage.client.job(job_id), JobProgressed)
    assert 200 < len(progressed) < 400
    assert progressed[-1].done > 3_500
