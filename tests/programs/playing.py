"""Plays a story on an installation in memory, and notes what became of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from tests.programs import program as programs
from tests.programs.program import Sent, Story, follow, leaf_queue
from tests.programs.system import START, Crash, Selector, System

from penstock.events.job import (
    JOB_EVENTS,
    JobCancelled,
    JobCompleted,
    JobDead,
    JobDispatched,
    JobRecovered,
)
from penstock.events.workflow import (
    StepRecorded,
    StepsScheduled,
    WorkflowAdvanced,
)
from penstock.jobs.errors import JobRefused, NotFound
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.lifecycle import State
from penstock.verifying.checker import check
from penstock.verifying.rules import Entry

WORKFLOW = "w"
_NEVER = float("inf")
_RECOVERS_WITHIN = (1, 11, 12, 31, 45, 65, 95, 400, 1500)
"""Seconds after a crash at which the installation is looked at."""
_CLEANUP_SECONDS = 86_400.0
_MOST_MOVES = 2_000
_ENDS = {event.__name__ for event in (JobCompleted, JobDead, JobCancelled)}


class Happened(msgspec.Struct, kw_only=True):
    """What became of a story.

    Attributes:
        state: of the workflow.
        outcome: its value, or the kind of its error.
        at: seconds after its start at which it had ended.
        stored: messages that processes stored.
        hits: the kinds of messages at which processes were killed.
        steps: what its advances scheduled, and what ran inside of them.
        jobs: ids of all jobs.
        cancelled: ids of those among them that were cancelled.
        inline_runs: how often each inline step ran.
        inline_records: how often one was recorded.
        lost_runs: runs of workflows whose worker was lost.
        wrong: what must not be.
    """

    state: str = ""
    outcome: Any = None
    at: float = 0.0
    stored: int = 0
    hits: list[str] = []
    steps: list[Any] = []
    jobs: set[str] = set()
    cancelled: set[str] = set()
    inline_runs: list[int] = []
    inline_records: int = 0
    lost_runs: int = 0
    wrong: list[str] = []


class Play:
    """One story, from its dispatch until nothing is left of it."""

    def __init__(self, story: Story, crash: Crash, workers: int, orchestrators: int) -> None:
        self.story = story
        self._seconds = {run.number: run.seconds for run in programs.jobs(story.program)}
        leaves = [leaf_queue(number) for number in self._seconds]
        self.system = System(crash, workers, orchestrators, leaves)
        self._due: dict[int, float] = {}
        self._offered: set[int] = set()
        self._agenda = sorted(self._planned(), key=lambda item: item[0])
        self._looks: list[float] = []
        self._hits = self._looked_to = 0
        self.happened = Happened()

    async def run(self) -> Happened:
        programs.mended.discard(WORKFLOW)
        programs.inline_runs.clear()
        programs.code.is_new = not self.story.deployed_at
        system = self.system
        try:
            data = msgspec.to_builtins(self.story.program)
            await system.client.dispatch(follow(program=data), job_id=WORKFLOW)
            for _ in range(_MOST_MOVES):
                await system.settle()
                await self._look()
                at = self._next()
                if at == _NEVER:
                    break
                await self._take_agenda(at)
                await system.move_to(at)
            else:
                self.happened.wrong.append("it does not come to an end")
            self._judge()
        except AssertionError as error:
            self.happened.wrong.append(str(error))
        finally:
            programs.code.is_new = True
            await system.end()
        return self.happened

    def _planned(self) -> Iterator[tuple[float, Callable[[], Awaitable[None]]]]:
        """What is done to the workflow from outside, and when."""
        story = self.story
        for sent in story.sent:
            yield sent.at, partial(self._send, sent)
        if story.cancelled_at is not None:
            yield story.cancelled_at, self._cancel
        if story.deployed_at:
            yield story.deployed_at, self._deploy
        if story.paused:
            workflows = self.system.client.workflows
            yield story.paused[0], partial(self._change, workflows.pause)
            yield story.paused[1], partial(self._change, workflows.resume)

    # --- moving on --------------------------------------------------------------------------------
    def _next(self) -> float:
        """When something happens next; never, once nothing is left."""
        system = self.system
        times = [system.claims_lapse_at, *system.timers(), *self._looks]
        times += [due for number, due in self._due.items() if number not in self._offered]
        times += [START + self._agenda[0][0]] if self._agenda else []
        return max(min(times), system.clock) if times else _NEVER

    async def _take_agenda(self, at: float) -> None:
        """What happens at a time, which comes after it."""
        system = self.system
        system.clock = max(system.clock, at)
        for number, due in self._due.items():
            if due <= at and number not in self._offered:
                self._offered.add(number)
                system.offer(leaf_queue(number))
        while self._agenda and START + self._agenda[0][0] <= at:
            _, act = self._agenda.pop(0)
            await act()
        self._looks = [look for look in self._looks if look > at]

    async def _cancel(self) -> None:
        await self.system.client.workflows.cancel(
            WORKFLOW, "the story says so", cleanup_seconds=_CLEANUP_SECONDS
        )

    async def _deploy(self) -> None:
        programs.code.is_new = True

    async def _change(self, change: Callable[[str], Awaitable[Any]]) -> None:
        """Pauses or resumes it; refused after its end."""
        has_ended = (await self.system.client.workflows.get(WORKFLOW)).state.ended
        try:
            await change(WORKFLOW)
            is_refused = False
        except JobRefused:
            is_refused = True
        if is_refused is not has_ended:
            self.happened.wrong.append(f"{change}: refused: {is_refused}")

    async def _send(self, sent: Sent) -> None:
        workflows = self.system.client.workflows
        has_ended = (await workflows.get(WORKFLOW)).state.ended
        for _ in range(sent.times):
            try:
                await workflows.signal(WORKFLOW, sent.signal, sent.value, signal_id=str(sent.value))
                refused = False
            except JobRefused:
                refused = True
            if refused is not has_ended:
                self.happened.wrong.append(f"signal {sent}: refused: {refused}")

    async def _look(self) -> None:
        """Notes jobs that wait, an end, and a crash."""
        system, happened = self.system, self.happened
        for number in self._seconds:
            depth = system.bus._broker.ensure_queue(leaf_queue(number)).depth()
            if depth.waiting and number not in self._due:
                self._due[number] = system.clock + self._seconds[number]
        if len(system.crash.hits) > self._hits:
            self._hits = len(system.crash.hits)
            self._looks = [system.clock + seconds for seconds in _RECOVERS_WITHIN]
        new, self._looked_to = system.events_since(self._looked_to, WORKFLOW)
        if not new & _ENDS:
            return
        with suppress(NotFound):
            view = await system.client.job(WORKFLOW)
            is_broken = view.error is not None and programs.UNMENDED in view.error.message
            if view.state is State.DEAD and is_broken:
                programs.mended.add(WORKFLOW)
                await system.client.retry(WORKFLOW)
                await system.settle()
                await self._look()
            elif view.state.ended and not happened.state:
                happened.state = str(view.state)
                happened.at = system.clock - START
                happened.outcome = view.result
                if view.state is State.DEAD:
                    happened.outcome = view.error.kind.rpartition(".")[2] if view.error else ""

    # --- judging ----------------------------------------------------------------------------------
    def _judge(self) -> None:
        system, happened = self.system, self.happened
        happened.stored, happened.hits = system.crash.stored, system.crash.hits
        histories = self._histories()
        for event in (event for _, event in histories.get(WORKFLOW, [])):
            if isinstance(event, WorkflowAdvanced | StepsScheduled):
                happened.steps += [
                    (step.n, step.key, step.kind, step.digest) for step in event.scheduled
                ]
            elif isinstance(event, StepRecorded):
                happened.steps.append((event.inline.key, event.inline.value))
            elif type(event).__name__ == "WorkflowBlocked":
                happened.wrong.append("it was blocked")
        happened.jobs = set(histories)
        happened.cancelled = {
            job_id
            for job_id, events in histories.items()
            if any(isinstance(event, JobCancelled) for _, event in events)
        }
        kinds = Counter(type(event) for events in histories.values() for _, event in events)
        happened.inline_records = kinds[StepRecorded]
        happened.lost_runs = sum(
            isinstance(event, JobRecovered)
            for events in histories.values()
            if isinstance(events[0][1], JobDispatched) and events[0][1].kind
            for _, event in events
        )
        happened.inline_runs = sorted(programs.inline_runs.values())
        report = check(histories, must_end=True, acknowledged=[WORKFLOW])
        happened.wrong += map(str, report.violations)
        happened.wrong += [f"left behind: {subject}" for subject in system.counts()]

    def _histories(self) -> dict[str, list[Entry]]:
        system = self.system
        histories: dict[str, list[Entry]] = {}
        pattern = system.subjects.events("job")
        for stored in system.bus.stored(system.subjects.events_stream, pattern):
            job_id = stored.subject.split(".")[3]
            event = read_event(stored, JOB_EVENTS)
            histories.setdefault(job_id, []).append((stored.sequence, event))
        return histories


def play(
    story: Story, crash: Crash | None = None, workers: int = 1, orchestrators: int = 1
) -> Happened:
    """What becomes of a story.

    Args:
        crash: where a process is killed; None for nowhere.
        workers: how many the installation has.
        orchestrators: likewise.
    """

    async def run() -> Happened:
        return await Play(story, crash or Crash(), workers, orchestrators).run()

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(Selector())) as runner:
        return runner.run(run())
