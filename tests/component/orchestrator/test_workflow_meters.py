"""The numbers of coded workflows: how many wait, go on or are blocked; how soon they go on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from penstock.bus.protocol import Outgoing
from penstock.events.envelope import encode
from penstock.events.job import JobCancelled, JobCompleted
from penstock.events.job_event import JobEvent
from penstock.events.workflow import WorkflowAdvanced, WorkflowBlocked
from penstock.jobs import Client, Step, WorkflowContext, job, workflow
from penstock.jobs.event_store.event_log import History
from penstock.jobs.job_log import JobLog
from penstock.jobs.workflows.coded import blocking
from penstock.jobs.workflows.coded.running import unrecorded
from penstock.jobs.workflows.declared.reading import from_toml
from penstock.orchestrator.workflows.bounded_labels import BoundedLabels
from penstock.orchestrator.workflows.step_meters import StepMeters
from penstock.orchestrator.workflows.suspended.suspended_workflows import SuspendedWorkflows
from penstock.orchestrator.workflows.suspended.workflow_meters import WorkflowMeters
from penstock.orchestrator.workflows.tracker import WorkflowTracker
from penstock.telemetry import metrics
from penstock.telemetry.meters import Meters, Reading, Spread
from penstock.testing import Bench

START = datetime(2026, 11, 23, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


class Counted:
    """The numbers of a process that starts at START."""

    def __init__(self) -> None:
        self.meters, self.now = Meters(), START
        self.workflows = WorkflowMeters(self.meters, lambda: self.now.timestamp())  # noqa: PLW0108 - the time moves

    def advanced(self, at: float, *, key: str = "one", due: float | None = None) -> None:
        event = WorkflowAdvanced(
            job_id=key,
            source="worker",
            queue="workflows",
            number=1,
            now=after(at),
            due_at=None if due is None else after(due),
            run_seconds=0.5,
            function="fulfil",
        )
        self.workflows.advanced(key, event, after(at))

    def blocked(self, at: float, *, key: str = "one") -> None:
        self.workflows.blocked(key, "fulfil", after(at + 60))

    def states(self) -> dict[str, float]:
        return states(self.meters)

    def resumes(self) -> tuple[int, float]:
        """How many runs followed on a wait, and their seconds in all."""
        for sample in self.meters.samples():
            if isinstance(sample, Spread) and sample.metric == metrics.WORKFLOW_RESUME:
                return sum(sample.counts), sample.total
        return 0, 0.0


def states(meters: Meters) -> dict[str, float]:
    return {
        sample.labels[1]: sample.value
        for sample in meters.samples()
        if isinstance(sample, Reading) and sample.metric == metrics.WORKFLOWS and sample.value
    }


def test_a_workflow_that_is_woken_goes_on_and_waits_again() -> None:
    counted = Counted()
    counted.advanced(1)
    counted.advanced(1, key="two")
    assert counted.states() == {"suspended": 2}
    counted.workflows.woken("one", after(10).timestamp())
    assert counted.states() == {"suspended": 1, "going-on": 1}
    counted.advanced(12.5)  # half a second of which it ran
    assert counted.states() == {"suspended": 2}
    assert counted.resumes() == (1, 2.0)


def test_a_timer_counts_from_the_time_that_it_is_due() -> None:
    counted = Counted()
    counted.advanced(1, due=100)
    counted.advanced(101.5)
    assert counted.resumes() == (1, 1.0)
    counted.advanced(105)  # by nothing that is known
    assert counted.resumes() == (1, 1.0)


@pytest.mark.parametrize("is_done", [True, False])
def test_an_ended_workflow_is_not_counted_any_more(is_done: bool) -> None:
    counted = Counted()
    counted.advanced(1)
    counted.workflows.woken("one", after(10).timestamp())
    about = {"job_id": "one", "source": "worker", "queue": "workflows"}
    completed = JobCompleted(attempt=1, run_seconds=2.0, result=b"", **about)
    end = completed if is_done else JobCancelled(job_id="one", source="cli", reason="")
    counted.workflows.ended("one", end, after(14))
    assert counted.states() == {}
    assert counted.resumes() == (1, 2.0 if is_done else 4.0)


def test_a_blocked_workflow_is_so_until_it_goes_on_or_is_not_offered_any_more() -> None:
    counted = Counted()
    counted.advanced(1)
    counted.blocked(10)
    counted.blocked(10, key="never advanced")
    assert counted.states() == {"blocked": 2}
    counted.advanced(80)
    assert counted.states() == {"suspended": 1, "blocked": 1}
    counted.now = after(200)
    assert counted.states() == {"suspended": 1}


def test_a_paused_workflow_is_so_until_it_is_resumed_and_its_pause_is_no_delay() -> None:
    counted = Counted()
    counted.advanced(1, due=100)
    counted.workflows.woken("one", after(10).timestamp())
    counted.workflows.paused("one")
    assert counted.states() == {"paused": 1}
    counted.workflows.resumed("one", after(500))
    assert counted.states() == {"suspended": 1}
    counted.advanced(503.5)
    assert counted.resumes() == (1, 3.0)


def test_what_was_stored_before_the_start_is_not_counted() -> None:
    counted = Counted()
    counted.advanced(-10, due=-6)
    counted.advanced(-5)
    assert counted.states() == {"suspended": 1}
    assert counted.resumes() == (0, 0.0)
    assert [s for s in counted.meters.samples() if s.metric == metrics.WORKFLOW_ADVANCES] == []


@job(name="counted.charge", queue="cards")
def charge() -> None: ...


@workflow(name="counted.fulfil")
async def fulfil(ctx: WorkflowContext) -> None:
    await ctx.run(charge())
    await ctx.wait_signal("go", bool)


async def test_an_orchestrator_counts_what_it_follows(penstock: Bench) -> None:
    await penstock.client.dispatch(fulfil())
    await penstock.run_pending()
    meters = Meters()
    bus = penstock.bus.client()
    subjects = penstock.client.workflows._subjects
    suspended = SuspendedWorkflows(bus, subjects, Client(bus), meters=meters)
    for stored in await bus.history(subjects.events_stream, subjects.events("job"), start=1):
        suspended.see(stored)
    assert states(meters) == {"suspended": 1}


def steps(meters: Meters) -> dict[tuple[str, ...], int]:
    return {
        sample.labels: sum(sample.counts)
        for sample in meters.samples()
        if isinstance(sample, Spread) and sample.metric == metrics.WORKFLOW_STEP
    }


@workflow(name="counted.broad")
async def broad(ctx: WorkflowContext) -> None:
    await ctx.gather(charge(), charge(), ctx.wait_signal("go", bool))


@workflow(name="counted.below")
async def below(ctx: WorkflowContext) -> None:
    await ctx.run(charge())


@workflow(name="counted.nested")
async def nested(ctx: WorkflowContext) -> None:
    await ctx.gather(below(), *(charge() for _ in range(10)))


async def test_steps_of_both_kinds_are_counted_by_workflow_and_name(penstock: Bench) -> None:
    definition = from_toml(
        'name = "orders"\nversion = 1\n[[steps]]\nname = "pay"\nfunction = "counted.charge"\n'
        '[[steps]]\nname = "ship"\nfunction = "counted.charge"\nneeds = ["pay"]\n'
    )
    meters, subjects, client = Meters(), penstock.bus.subjects, penstock.client
    suspended = SuspendedWorkflows(penstock.bus, subjects, client, meters=meters)
    graphs = WorkflowTracker(penstock.bus, subjects, client, meters=meters)
    await client.definitions.run(definition)
    await client.graphs.dispatch({"only": Step(charge())}, title="of no definition")
    workflow_id = await client.dispatch(broad())
    await penstock.run_pending()
    await client.workflows.signal(workflow_id, "go", True)
    await penstock.run_pending()
    for stored in penstock.bus.stored(subjects.events_stream, subjects.events()):
        noun, name = stored.subject.split(".")[-3], stored.subject.rpartition(".")[2]
        if noun == "graph" or name in ("JobDispatched", "JobCompleted"):
            await graphs.see(stored)
        if name in ("WorkflowAdvanced", "SignalReceived", "JobCompleted"):
            suspended.see(stored)
    assert steps(meters) == {
        ("counted.broad", "gather/charge"): 2,
        ("orders", "pay"): 1,
        ("orders", "ship"): 1,
    }


async def test_steps_of_a_part_and_workflows_below_are_counted(
    penstock: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a join that is recorded in several parts, one of whose steps is a workflow."""
    monkeypatch.setattr(unrecorded, "MAX_PART_BYTES", 500)
    meters, subjects, client = Meters(), penstock.bus.subjects, penstock.client
    suspended = SuspendedWorkflows(penstock.bus, subjects, client, meters=meters)
    await client.dispatch(nested())
    await penstock.run_pending()
    parts = penstock.bus.stored(
        subjects.events_stream, subjects.events("job", "*", "StepsScheduled")
    )
    assert len(parts) > 1
    see_all(penstock, suspended)
    counted = steps(meters)
    assert counted["counted.nested", "gather/charge"] == 10
    assert counted["counted.nested", "gather/below"] == 1


INVENTED = 3_000


async def invent(bench: Bench, make: Callable[[str], JobEvent]) -> None:
    """Stores events of workflows that there are not, as a key may that dispatches jobs."""
    events = [make(f"ghost-{number}") for number in range(INVENTED)]
    messages = [Outgoing(bench.bus.subjects.event(event), encode(event)) for event in events]
    await bench.bus.append_many(messages)


def blocked_event(key: str, function: str = "shop.fulfil") -> WorkflowBlocked:
    far = datetime(9990, 1, 1, tzinfo=UTC)
    return WorkflowBlocked(
        job_id=key, queue="workflows", reason="other code", due_at=far, function=function
    )


def advanced_event(key: str) -> WorkflowAdvanced:
    return WorkflowAdvanced(
        job_id=key, queue="workflows", number=1, now=START, function="shop.fulfil"
    )


def see_all(bench: Bench, suspended: SuspendedWorkflows) -> None:
    """Shows the orchestrator's part what it follows of all that is stored."""
    stored = bench.bus.stored(bench.bus.subjects.events_stream, ">")
    names = [pattern.rpartition(".")[2] for pattern in suspended.patterns()]
    for message in sorted(stored, key=lambda one: one.sequence):
        if message.subject.rpartition(".")[2] in (*names, "JobCompleted"):
            suspended.see(message)


async def test_only_workflows_that_were_dispatched_count_as_blocked(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(fulfil())
    await penstock.run_pending()
    record = await JobLog(penstock.bus, penstock.bus.subjects).read(workflow_id)
    assert record is not None
    event = blocking.blocked(record, "other code", source="worker", now=record.dispatched_at)
    meters = Meters()
    suspended = SuspendedWorkflows(
        penstock.bus, penstock.bus.subjects, penstock.client, meters=meters
    )
    await invent(penstock, blocked_event)
    await penstock.bus.append(Outgoing(penstock.bus.subjects.event(event), encode(event)))
    see_all(penstock, suspended)
    for _ in range(10):
        await suspended.round(penstock.bus.now())
    assert states(meters) == {"blocked": 1}


async def test_workflows_that_were_never_dispatched_are_not_kept(penstock: Bench) -> None:
    meters = Meters()
    suspended = SuspendedWorkflows(
        penstock.bus, penstock.bus.subjects, penstock.client, meters=meters
    )
    await invent(penstock, advanced_event)
    see_all(penstock, suspended)
    assert len(suspended.unfinished) == INVENTED
    await suspended.round(penstock.bus.now() + 60.0)
    assert (suspended.unfinished, states(meters)) == ({}, {})


async def test_lists_and_replay_pass_over_invented_workflows_without_reading_them(
    penstock: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow_id = await penstock.client.dispatch(fulfil())
    await penstock.run_pending()
    await invent(penstock, blocked_event)
    await penstock.advance(timedelta(hours=1))
    reads: list[str] = []
    history = JobLog.traced_history

    async def counted(log: JobLog, job_id: str) -> tuple[History, str]:
        reads.append(job_id)
        return await history(log, job_id)

    monkeypatch.setattr(JobLog, "traced_history", counted)
    workflows = penstock.client.workflows
    waiting = await workflows.list(waiting_longer=timedelta(seconds=1), limit=10)
    assert [view.id for view in waiting] == [workflow_id]
    assert [one.id for one in (await workflows.replay()).workflows] == [workflow_id]
    assert len(reads) < 10


def test_long_names_are_cut() -> None:
    """A name of 400 kB, which any key may choose, is neither kept nor published."""
    labels = BoundedLabels(10, "other")
    pairs = BoundedLabels(10, ("other", "other"))
    assert len(labels["f" * 400_000]) == 200
    assert [len(part) for part in pairs["f" * 400_000, "s" * 300]] == [200, 200]
    assert labels["f" * 200] == labels["f" * 400_000]


def test_further_names_of_steps_are_counted_together() -> None:
    meters = Meters()
    counted = StepMeters(meters)
    for n in range(400):
        counted.began("one", n, 1.0, workflow="fulfil", name=f"step {n}")
        counted.ended("one", n, 2.0)
    assert len(steps(meters)) == 301
    assert steps(meters)["other", "other"] == 100
    counted.began("two", 1, 1.0, workflow="fulfil", name="step 1")
    counted.forget("two")
    counted.ended("two", 1, 2.0)
    assert sum(steps(meters).values()) == 400
