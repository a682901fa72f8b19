"""A whole installation in memory: the real worker and orchestrator, whose processes can be killed.

Time is virtual and stands still while anything runs. A process that is killed does nothing more:
its connection to the broker is closed, its tasks are cancelled; then another one is started.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from tests.programs.program import FLOWS

from penstock.bus.patterns import matches
from penstock.bus.protocol import BusError, Delivery, Outgoing
from penstock.config.load import check
from penstock.events import envelope
from penstock.events.envelope import utc_now
from penstock.events.subjects import Subjects
from penstock.jobs import Client
from penstock.jobs.batches.batch_record import BatchState
from penstock.orchestrator.core.batch import SETTLE_SECONDS, Batch
from penstock.orchestrator.core.unresolved import Unresolved
from penstock.orchestrator.reconciling.cursor import Cursor, Position
from penstock.orchestrator.reconciling.reconciler import Reconciler
from penstock.orchestrator.reconciling.transitions import steps
from penstock.orchestrator.workflows.suspended.suspended_workflows import SuspendedWorkflows
from penstock.orchestrator.workflows.tracker import WorkflowTracker
from penstock.testing.memory.bus import MemoryBus
from penstock.testing.spark import NotAsked
from penstock.worker.app import without_executor
from penstock.worker.loop import Worker
from penstock.worker.parts import assemble

START = datetime(2026, 11, 20, tzinfo=UTC).timestamp()
PATIENCE_SECONDS = 10.0
_CLAIM_SECONDS = 30.0
_MOST_ENTRIES = 10_000
_LOOK_SECONDS = 0.0002
_QUIET_LOOKS = 2
_HANGS_SECONDS = 20.0
_OWNER: ContextVar[Process | None] = ContextVar("owner", default=None)
SETTINGS = check(
    {
        "pools": {FLOWS: {}},
        "jobs": {"claim_seconds": _CLAIM_SECONDS, "unknown_after_seconds": 0},
        "spark": {"remote": "sc://127.0.0.1:1"},
    }
)


class Crash:
    """Kills the processes that store the messages with these numbers.

    Args:
        numbers: of messages among all that processes store.
        after: whether the broker still takes them.
        doubles: each queue message is stored twice.

    Attributes:
        stored: how many were.
        hits: the kind of each message at which a process was killed.
    """

    def __init__(self, *numbers: int, after: bool = False, doubles: bool = False) -> None:
        self.numbers, self.after, self.doubles = numbers, after, doubles
        self.stored = 0
        self.hits: list[str] = []


class Process:
    """Something of its own connection, which can be killed. Stands in for its bus."""

    def __init__(self, bus: MemoryBus, crash: Crash) -> None:
        self._client, self._crash = bus.client(), crash
        self.tasks: set[asyncio.Task[Any]] = set()
        self.is_dead = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task that ends with the process, and all that it starts."""
        before = _OWNER.set(self)
        try:
            return asyncio.get_running_loop().create_task(work)
        finally:
            _OWNER.reset(before)

    async def append(self, message: Outgoing) -> int:
        return await self._stored([message], lambda: self._client.append(message))

    async def append_atomic(self, messages: Sequence[Outgoing]) -> int:
        return await self._stored(messages, lambda: self._client.append_atomic(messages))

    async def append_many(self, messages: Sequence[Outgoing]) -> list[int | BusError]:
        answers: list[int | BusError] = []
        for message in messages:
            try:
                answers.append(await self.append(message))
            except BusError as error:
                answers.append(error)
        return answers

    async def _stored(
        self, messages: Sequence[Outgoing], store: Callable[[], Awaitable[int]]
    ) -> int:
        crash, subject = self._crash, messages[0].subject
        if ".state." in subject:  # cursors, which are stored at any time
            return await store()
        crash.stored += 1
        is_hit = crash.stored in crash.numbers
        if is_hit and not crash.after:
            await self._be_killed(subject)
        if crash.doubles and ".jobs." in subject:
            await store()
        try:
            return await store()
        finally:
            if is_hit and crash.after:
                await self._be_killed(subject)

    async def _be_killed(self, subject: str) -> None:
        self._crash.hits.append(subject.split(".")[1] + " " + subject.rpartition(".")[2])
        await self.kill()
        raise asyncio.CancelledError

    async def kill(self) -> None:
        self.is_dead = True
        for task in tuple(self.tasks):
            if task is not asyncio.current_task():
                task.cancel()
        await self._client.close()


class WorkerBus(Process):
    """A worker's: all queues are one to it, where a puller for each would take half of the time."""

    def __init__(self, bus: MemoryBus, crash: Crash, queues: Sequence[str]) -> None:
        super().__init__(bus, crash)
        self._broker, self._queues = bus._broker, tuple(queues)

    def puller(self, queue: str) -> WorkerBus:
        return self

    async def fetch(self, batch: int, wait_seconds: float) -> list[Delivery]:
        """What is offered, of the first queue that has any."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        while True:
            for queue in self._queues:
                if deliveries := await self._client.take(queue, batch, 0):
                    return deliveries
            if loop.time() >= deadline:
                return []
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._broker.change(self._broker.jobs)

    async def give_back(self, ack_subjects: Sequence[str], delay_seconds: float = 0.0) -> None:
        await self._client.give_back(ack_subjects, delay_seconds)
        self._broker.ring(self._broker.jobs)


def _task_factory(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    task = asyncio.Task(work, loop=loop, **options)
    if owner := _OWNER.get():
        owner.tasks.add(task)
        task.add_done_callback(owner.tasks.discard)
    return task


class WorkerProcess:
    """One worker, for workflows and their jobs."""

    def __init__(self, bus: MemoryBus, crash: Crash, queues: Sequence[str]) -> None:
        self.process = WorkerBus(bus, crash, queues)
        self.process.begin(self._run())
        self.worker: Worker | None = None
        self._parts: Any = None

    async def _run(self) -> None:
        assignment = without_executor(SETTINGS, FLOWS)
        self._parts = assemble(self.process, assignment, NotAsked("", SETTINGS.spark))
        self.worker = Worker(self._parts)
        await self.worker.run()

    @property
    def is_busy(self) -> bool:
        if self._parts is None:
            return True
        return bool(self._parts.in_flight.jobs or (self.worker and self.worker._winning))

    @property
    def is_alive(self) -> bool:
        """Whether its thread runs on."""
        return self._parts is not None and self._parts.runner.alive

    def forget(self) -> None:
        """Lets the threads of a killed worker end."""
        if self._parts is not None:
            for job in tuple(self._parts.in_flight.jobs.values()):
                job.lost = True
            self._parts.runner.stop()


class OrchestratorProcess:
    """The parts of an orchestrator that workflows and jobs need to go on."""

    def __init__(self, bus: MemoryBus, crash: Crash) -> None:
        self.process = Process(bus, crash)
        process: Any = self.process
        self._bus, subjects = bus, Subjects(SETTINGS.prefix)
        client = Client.over(process, SETTINGS, "orchestrator")
        self.suspended = SuspendedWorkflows(process, subjects, client, PATIENCE_SECONDS)
        self.tracker = WorkflowTracker(process, subjects, client, now=utc_now)
        self.table = Unresolved(PATIENCE_SECONDS, _MOST_ENTRIES)
        self.reconciler = Reconciler(process, subjects, self.table)
        self._subjects = subjects
        self._cursors = Cursor(process, subjects), Cursor(process, subjects, "workflows")
        self.is_up = False
        self._read_to = [0, 0]
        self.process.begin(self._run())

    async def _run(self) -> None:
        position = await self._cursors[0].load()
        self.table.resume(position.sequence, position.dead_letters_from)
        self.suspended.resume((await self._cursors[1].load()).sequence)
        await self.tracker.load()
        self.is_up = True
        self.process.begin(self.suspended.follow())
        self.process.begin(self.tracker.follow())
        async for step in steps(self.process, self._subjects, position.sequence):
            self.table.see(step)

    def is_behind(self, bus: MemoryBus) -> bool:
        """Whether it has not read all that concerns it."""
        if not self.is_up:
            return True
        events = bus._broker.stream(bus.subjects.events_stream)
        for index, follower in enumerate((self.suspended, self.tracker)):
            if self._read_to[index] == events.last_sequence:
                continue
            patterns = follower.patterns()
            for sequence in range(
                max(self._read_to[index], follower.position) + 1, events.last_sequence + 1
            ):
                message = events.messages.get(sequence)
                if message and any(matches(pattern, message.subject) for pattern in patterns):
                    return True
                self._read_to[index] = sequence
        return False

    async def round(self, now: float) -> None:
        """One look at everything, as its loops take them again and again."""

        async def look() -> None:
            await self.suspended.round(now)
            self.tracker._tried.clear()  # each look is seconds after the one before
            for name in tuple(self.tracker.unfinished):
                await self.tracker.settle(name)
            await self.reconciler.round(now)

        task = self.process.begin(look())
        with suppress(asyncio.CancelledError):
            await task

    @property
    def is_stopping_batch(self) -> bool:
        """Whether it waits a moment for jobs that a batch may still be given."""
        return any(
            isinstance(batch, Batch) and batch.record.state is BatchState.STOPPING
            for batch in self.tracker.unfinished.values()
        )

    async def keep_positions(self) -> None:
        position = Position(
            sequence=self.table.cursor(), dead_letters_from=self.table.dead_letters_from()
        )
        await self._cursors[0].keep(position)
        await self._cursors[1].keep(Position(sequence=self.suspended.cursor()))
        await self.tracker.keep()


class Selector(selectors.DefaultSelector):
    """Of a loop without sockets: only a thread can wake it, and it needs no look while tasks go on.

    A look is a system call: a tenth of the time of a play.
    """

    def select(self, timeout: float | None = None) -> list[Any]:
        return [] if timeout is not None and timeout <= 0 else super().select(timeout)


class System:
    """The installation.

    Args:
        crash: where a process is killed.
        workers: how many there are.
        orchestrators: likewise.
        leaves: queues of the program's jobs, which are not offered yet.

    Attributes:
        clock: POSIX seconds.
        recovering_until: a crash may delay what happens until then.
    """

    def __init__(
        self, crash: Crash, workers: int, orchestrators: int, leaves: Sequence[str]
    ) -> None:
        asyncio.get_running_loop().set_task_factory(_task_factory)  # type: ignore[arg-type]
        self.crash = crash
        self.clock = START
        wall: Any = SimpleNamespace(now=lambda zone: datetime.fromtimestamp(self.clock, zone))
        envelope.datetime = wall  # what events are dated by
        self.bus = MemoryBus(settings=SETTINGS, now=lambda: self.clock)
        self.subjects = self.bus.subjects
        self.client = Client.over(self.bus.client(), SETTINGS, "client")
        self._queues = (FLOWS, *leaves)
        for queue in self._queues:
            self.bus._broker.ensure_queue(queue).paused = queue != FLOWS
        self.workers = [self._hired() for _ in range(workers)]
        self._all_workers = list(self.workers)
        self.orchestrators = [OrchestratorProcess(self.bus, crash) for _ in range(orchestrators)]

    def _hired(self) -> WorkerProcess:
        return WorkerProcess(self.bus, self.crash, self._queues)

    def offer(self, queue: str) -> None:
        """Lets the worker take the jobs of a queue, now and later."""
        broker = self.bus._broker
        broker.ensure_queue(queue).paused = False
        broker.ring(broker.jobs)

    async def move_to(self, at: float) -> None:
        """Lets time pass, and what is due begin."""
        for orchestrator in self.orchestrators:
            await orchestrator.keep_positions()
        self.clock = max(self.clock, at)
        self.bus.tick()
        self.bus._broker.ring(self.bus._broker.jobs)  # claims lapsed
        await self.settle()

    async def settle(self) -> None:
        """Until nothing goes on at this moment."""
        loop = asyncio.get_running_loop()
        hangs_at = loop.time() + _HANGS_SECONDS
        await self._quiet(hangs_at)
        while True:
            before = self._stored()
            for orchestrator in self.orchestrators:
                await orchestrator.round(self.clock)
            await self._quiet(hangs_at)
            if self._stored() == before:
                return

    def _stored(self) -> int:
        return sum(stream.last_sequence for stream in self.bus._broker.streams)

    async def _quiet(self, hangs_at: float) -> None:
        """Until no task can go on, and no process has anything to do."""
        loop: Any = asyncio.get_running_loop()
        quiet = 0
        while quiet < _QUIET_LOOKS:
            self._replace_dead()
            can_go_on = bool(loop._ready)
            is_busy = not can_go_on and self._is_busy()
            quiet = 0 if can_go_on or is_busy else quiet + 1
            await asyncio.sleep(_LOOK_SECONDS if is_busy else 0)
            if loop.time() > hangs_at:
                raise AssertionError(f"it hangs: {self._depths()}")

    def _is_busy(self) -> bool:
        if any(worker.is_busy for worker in self.workers):
            return True
        queues = self.bus._broker.queues.values()
        if any(not queue.paused and queue.waiting for queue in queues):
            return True
        return any(orchestrator.is_behind(self.bus) for orchestrator in self.orchestrators)

    def _depths(self) -> Any:
        queues = self.bus._broker.queues.values()
        return [queue.depth() for queue in queues if queue.depth().waiting or queue.depth().claimed]

    def _replace_dead(self) -> None:
        for index, worker in enumerate(self.workers):
            if worker.process.is_dead:
                worker.forget()
                self.workers[index] = self._hired()
                self._all_workers.append(self.workers[index])
        for index, one in enumerate(self.orchestrators):
            if one.process.is_dead:
                self.orchestrators[index] = OrchestratorProcess(self.bus, self.crash)

    @property
    def claims_lapse_at(self) -> float:
        """When what a killed worker held is offered again; far away where nothing is held."""
        claims = [
            claim.lapses_at
            for queue in self.bus._broker.queues.values()
            for claim in queue._claims.values()
        ]
        return min(claims, default=float("inf"))

    def timers(self) -> list[float]:
        """When the broker's timers fire, and batches that are stopped end."""
        timers = list(self.bus.due_times().values())
        if any(orchestrator.is_stopping_batch for orchestrator in self.orchestrators):
            timers.append(self.clock + SETTLE_SECONDS)
        return timers

    def events_since(self, sequence: int, job_id: str) -> tuple[set[str], int]:
        """Names of the events of a job that were stored after a sequence, and the last sequence."""
        events = self.bus._broker.stream(self.subjects.events_stream)
        begin = self.subjects.events("job", job_id, "")
        later = map(events.messages.get, range(sequence + 1, events.last_sequence + 1))
        names = {
            message.subject.removeprefix(begin)
            for message in later
            if message and message.subject.startswith(begin)
        }
        return names, events.last_sequence

    def counts(self) -> Counter[str]:
        """Messages that are left where none may be, by subject."""
        stored = self.bus.stored(self.subjects.jobs_stream, ">")
        return Counter(message.subject for message in stored)

    async def end(self) -> None:
        """Nothing of it runs afterwards."""
        envelope.datetime = datetime
        for hired in self.workers:
            hired.forget()
            await hired.process.kill()
        for orchestrator in self.orchestrators:
            await orchestrator.process.kill()
        deadline = asyncio.get_running_loop().time() + _HANGS_SECONDS
        while any(worker.is_alive for worker in self._all_workers):
            assert asyncio.get_running_loop().time() < deadline, "a thread of a worker goes on"
            await asyncio.sleep(_LOOK_SECONDS)
