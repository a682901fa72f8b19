"""Events that may not follow, anywhere in a history: every reader agrees with the fold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies

from penstock.bus.patterns import matches
from penstock.bus.protocol import Expect, Outgoing
from penstock.events.envelope import encode
from penstock.events.job import (
    JOB_EVENTS,
    JobCancelled,
    JobCompleted,
    JobDead,
    JobDispatched,
    JobError,
    JobEvent,
    JobProgressed,
    JobReleased,
    JobRetrying,
    JobRevived,
    JobStarted,
)
from penstock.events.workflow import (
    StepRecorded,
    StepsScheduled,
    WorkflowAdvanced,
    WorkflowContinued,
)
from penstock.events.workflow_memo import InlineResult, Resolution, ScheduledStep, WaitGroup
from penstock.jobs import State, WorkflowContext, job, lifecycle, workflow
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.job_type import encode_result
from penstock.orchestrator.workflows.suspended.suspended_workflows import SuspendedWorkflows
from penstock.testing import Bench
from penstock.testing.memory.streams import Stream

ID = "flow"
STEPS = ("flow_step_0", "flow_step_2")
RESULT = [7, 14, True, 28]
LATER = datetime(2036, 1, 1, tzinfo=UTC)
FORGED = encode_result(666)


@job(queue="workflows")
def double(n: int) -> int:
    return 2 * n


def seven() -> int:
    return 7


@workflow()
async def flow(ctx: WorkflowContext) -> list[Any]:
    first = await ctx.step("first", seven)
    second = await ctx.run(double(n=first))
    approved = await ctx.wait_signal("approved", bool)
    return [first, second, approved, await ctx.run(double(n=second))]


# --- events that a client makes up ----------------------------------------------------------------
def _advanced(job_id: str, number: int, **fields: Any) -> WorkflowAdvanced:
    about: dict[str, Any] = {"function": flow.name, "version": 1, **fields}
    return WorkflowAdvanced(
        job_id=job_id, source="evil", queue="workflows", number=number, now=LATER, **about
    )


def _completed(job_id: str) -> JobCompleted:
    return JobCompleted(
        job_id=job_id, source="evil", queue="work", attempt=1, run_seconds=0.0, result=FORGED
    )


_PAYLOAD = b"\x80"
_ENDS = tuple(
    Resolution(key=key, outcome="completed", value=FORGED) for key in ("double", "approved")
)
_NEVER = ScheduledStep(n=9, key="never", kind="signal", digest="never")
FORGERIES: tuple[Callable[[str], JobEvent], ...] = (
    _completed,
    lambda i: _advanced(i, 1, wait=(WaitGroup((9,)),), scheduled=(_NEVER,)),
    lambda i: _advanced(i, 2, wait=(WaitGroup((9,)),), scheduled=(_NEVER,), inline_steps=1),
    lambda i: _advanced(i, 2, wait=(WaitGroup(()),), consumed=_ENDS, inline_steps=1),
    lambda i: _advanced(i, 3, wait=(WaitGroup((9,)),), scheduled=(_NEVER,), inline_steps=1),
    lambda i: _advanced(i, 77),
    lambda i: StepRecorded(
        job_id=i,
        source="evil",
        number=1,
        now=LATER,
        inline=InlineResult("first", "seven", FORGED),
        version=1,
    ),
    lambda i: StepRecorded(
        job_id=i,
        source="evil",
        number=2,
        now=LATER,
        inline=InlineResult("second", "seven", FORGED),
        consumed=_ENDS,
        version=1,
    ),
    lambda i: StepsScheduled(
        job_id=i, source="evil", number=2, now=LATER, cancelled=(0, 1, 2), version=1
    ),
    lambda i: WorkflowContinued(
        job_id=i, source="evil", queue="workflows", generation=1, payload=_PAYLOAD
    ),
    lambda i: JobStarted(job_id=i, source="evil", queue="work", attempt=1, host="h", worker="w"),
    lambda i: JobDispatched(
        job_id=i, source="evil", queue="workflows", function=double.name, payload=_PAYLOAD
    ),
    lambda i: JobProgressed(job_id=i, source="evil", done=1),
    lambda i: JobReleased(job_id=i, source="evil", reason=""),
    lambda i: JobRetrying(job_id=i, source="evil", attempt=2, due_at=LATER),
    lambda i: JobRevived(
        job_id=i, source="evil", queue="work", function=double.name, payload=_PAYLOAD
    ),
    lambda i: JobCancelled(job_id=i, source="evil", reason=""),
    lambda i: JobDead(
        job_id=i, source="evil", queue="work", error=JobError(kind="evil", message="no")
    ),
)


class Forgery(msgspec.Struct, frozen=True):
    """An event that is stored behind one of the workflow's or its steps, if it may not follow.

    Attributes:
        place: how many events were stored before, of all of these jobs.
        kind: which it is.
        job_id: of which job.
        compared: it names the last event before it, as one of a compare-and-set does.
    """

    place: int
    kind: int
    job_id: str
    compared: bool


class Forger:
    """Stores them as the events of a bench's broker come."""

    def __init__(self, penstock: Bench, forgeries: Sequence[Forgery]) -> None:
        self._broker = penstock.bus._broker
        self._events = self._broker.stream(penstock.bus.subjects.events_stream)
        self._subjects = penstock.bus.subjects
        self._left, self._stored = sorted(forgeries, key=lambda one: -one.place), 0
        self.forged: list[JobEvent] = []

    @contextmanager
    def at_work(self) -> Iterator[None]:
        store = self._broker.store

        def stored(stream: Stream, message: Outgoing) -> int:
            sequence = store(stream, message)
            if stream is self._events and f".{ID}" in message.subject:
                self._stored += 1
                while self._left and self._left[-1].place <= self._stored:
                    self.forge(self._left.pop())
            return sequence

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(self._broker, "store", stored)
            yield

    def forge(self, forgery: Forgery) -> None:
        """Stores one, if every fold passes over it."""
        event = FORGERIES[forgery.kind](forgery.job_id)
        tree = self._subjects.job(forgery.job_id)
        history = self._events.history(tree, 10_000)
        record = lifecycle.fold((one.sequence, read_event(one, JOB_EVENTS)) for one in history)
        last = history[-1].sequence if history else 0
        after = lifecycle.advance(record, event, last + 1)
        if record is None or after != msgspec.structs.replace(record, sequence=last + 1):
            return
        expect = Expect(last, tree) if forgery.compared else None
        message = Outgoing(self._subjects.event(event), encode(event), {}, expect)
        type(self._broker).store(self._broker, self._events, message)
        self.forged.append(event)


async def followed(penstock: Bench) -> SuspendedWorkflows:
    """An orchestrator that has read the whole log, and looked after what came."""
    subjects = penstock.bus.subjects
    suspended = SuspendedWorkflows(penstock.bus.client(), subjects, penstock.client)
    for stored in penstock.bus.stored(subjects.events_stream, subjects.events()):
        if any(matches(pattern, stored.subject) for pattern in suspended.patterns()):
            suspended.see(stored)
    for number in range(4):
        await suspended.round(penstock.bus.now() + 20 * number)
    return suspended


async def _readers_agree(penstock: Bench) -> None:
    """That the workflow waits for a signal, by every reader."""
    client = penstock.client
    record = (await client.job(ID)).record
    assert record.state is State.SUSPENDED
    view = await client.workflows.get(ID)
    assert [step.key for step in view.waits_for] == ["approved"]
    one = (await followed(penstock)).unfinished[ID]
    assert record.workflow is not None
    assert (one.sequence, one.number) == (record.changed_by, record.workflow.advances)
    assert [name for _, name in one.signals.values()] == ["approved"]
    await penstock.advance(60)
    assert ID in {one.id for one in await client.workflows.list(state=State.SUSPENDED)}
    longest = await client.workflows.list(waiting_longer=timedelta(seconds=30))
    assert ID in {one.id for one in longest}
    assert [one.outcome for one in (await client.workflows.replay()).workflows] == ["fits"]
    assert not await client.stuck_workflows.find(timedelta(seconds=30))


async def _run(penstock: Bench) -> None:
    """A worker that finds an event in between dispatches steps after it has acknowledged."""
    while await penstock.run_pending():
        pass


async def _runs_as_without(forgeries: Sequence[Forgery], late: Sequence[Forgery]) -> list[JobEvent]:
    penstock = Bench()
    forger = Forger(penstock, forgeries)
    with forger.at_work():
        await penstock.client.dispatch(flow(), job_id=ID)
        await _run(penstock)
    for forgery in late:
        forger.forge(forgery)
    await _readers_agree(penstock)
    await penstock.client.workflows.signal(ID, "approved", True)
    with forger.at_work():
        await _run(penstock)
    assert (await penstock.client.job(ID)).result == RESULT
    for step_id, result in zip(STEPS, (14, 28), strict=True):
        assert (await penstock.client.job(step_id)).result == result
    assert ID not in (await followed(penstock)).unfinished
    return forger.forged


_KINDS = strategies.integers(0, len(FORGERIES) - 1)
_JOBS = strategies.sampled_from((ID, *STEPS))
_FORGERIES = strategies.lists(
    strategies.builds(Forgery, strategies.integers(1, 20), _KINDS, _JOBS, strategies.booleans()),
    max_size=6,
)


@given(_FORGERIES, _FORGERIES)
def test_events_that_may_not_follow_change_nothing(
    forgeries: list[Forgery], late: list[Forgery]
) -> None:
    asyncio.run(_runs_as_without(forgeries, late))


@pytest.mark.parametrize("compared", [False, True])
@pytest.mark.parametrize("kind", range(len(FORGERIES)))
async def test_one_event_that_may_not_follow_changes_nothing_wherever_it_is(
    kind: int, compared: bool
) -> None:
    forgeries = [
        Forgery(place, kind, job_id, compared) for place in range(1, 25) for job_id in (ID, *STEPS)
    ]
    late = [Forgery(0, kind, job_id, compared) for job_id in (ID, *STEPS)]
    assert await _runs_as_without(forgeries, late)
