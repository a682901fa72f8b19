"""One event loop for the ``async def`` jobs of a worker that runs several jobs at a time.

It runs in a thread of its own, so that a job that blocks it delays other asynchronous jobs but
never the worker's claims. Each job is a task with a context of its own (:mod:`contextvars`). What a
job starts there with `asyncio.create_task` belongs to it: its processor time counts for the job,
and it is cancelled when the job ends, as `asyncio.run` does it.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import msgspec

from penstock.jobs.errors import Interruption, Verdict
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.running.attempt import Functions, failure, span
from penstock.worker.running.outcome import Outcome
from penstock.worker.running.running_jobs import RunningJobs

log = logging.getLogger("penstock.worker")

Ended = Callable[[ClaimedJob, Outcome], object]


class JobLoop:
    """Starts its thread with the first job.

    Args:
        ended: called in its thread when a job has ended.
        slots: how many jobs run at a time; so many may wait in `asyncio.to_thread`, too.

    Attributes:
        holder: the job whose code runs in the loop, and since when (monotonic seconds); None while
            all wait.
        cpu_clock: of its thread's CPU time, once that runs.
    """

    def __init__(
        self, functions: Functions, running: RunningJobs, ended: Ended, slots: int
    ) -> None:
        self._functions, self._running, self._ended = functions, running, ended
        self._slots = slots
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = False
        self.holder: tuple[ClaimedJob, float] | None = None
        self.cpu_clock = 0

    def start(self, job: ClaimedJob) -> None:
        """Begins the job as soon as the loop gets to it; from any thread."""
        with self._guard:
            loop = self._loop = self._loop or self._new_loop()
        loop.call_soon_threadsafe(self._begin, job, loop)

    def stop(self) -> None:
        """Ends the thread. Tasks that still run are left as they are."""
        self._stopping = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)

    # --- in the thread ----------------------------------------------------------------------------
    def _new_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        loop.set_task_factory(_count_for_its_job)
        loop.set_default_executor(ThreadPoolExecutor(self._slots, "job-call"))
        thread = threading.Thread(target=self._forever, args=(loop,), name="jobs", daemon=True)
        thread.start()
        return loop

    def _forever(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        self.cpu_clock = time.pthread_getcpuclockid(threading.get_ident())
        while not self._stopping:
            try:
                loop.run_forever()
            except BaseException:  # asyncio passes on a SystemExit that an author's task raised
                log.exception("a task of an asynchronous job ended with an error")

    def _begin(self, job: ClaimedJob, loop: asyncio.AbstractEventLoop) -> None:
        begun_at = time.monotonic()
        run = TaskRun(job, loop, self)
        self._running.add(job, run, begun_at)
        context = contextvars.Context()  # not a copy: this may be called at another job's end
        context.run(_OWNER.set, run)
        # made by the factory: it is the first of the tasks that belong to the run
        run.task = context.run(loop.create_task, self._run(job, run, begun_at))

    async def _run(self, job: ClaimedJob, run: TaskRun, begun_at: float) -> None:
        with self._functions.writing(job):
            outcome = await self._attempt(job, run)
            await run.end_other_tasks()
        self._running.remove(job)
        self._running.lift_limit(job)
        run_seconds = time.monotonic() - begun_at
        outcome = msgspec.structs.replace(
            outcome, run_seconds=run_seconds, cpu_seconds=job.live.spent_cpu_seconds
        )
        self._ended(job, outcome)

    async def _attempt(self, job: ClaimedJob, run: TaskRun) -> Outcome:
        try:
            with span(job) as job.live.span:
                return Outcome(result=await self._functions.result(job))
        except Verdict as verdict:
            return Outcome(verdict=verdict)
        except BaseException as error:  # an author may raise anything, SystemExit included
            return failure(job, run.interrupted_by() if run.interrupted_by else error)


class TaskRun:
    """One asynchronous job.

    Attributes:
        task: the one that awaits the job's function.
        interrupted_by: why it was cancelled; None while it was not.
    """

    def __init__(self, job: ClaimedJob, loop: asyncio.AbstractEventLoop, home: JobLoop) -> None:
        self._job, self._loop, self._home = job, loop, home
        self._tasks: set[asyncio.Task[Any]] = set()
        self.task: asyncio.Task[None] | None = None
        self.interrupted_by: type[Interruption] | None = None

    def interrupt(self, job: ClaimedJob, reason: type[Interruption]) -> None:
        """Cancels the job's task; from any thread."""
        self._loop.call_soon_threadsafe(self._cancel, reason)

    def _cancel(self, reason: type[Interruption]) -> None:
        if self.interrupted_by is None and self.task is not None:
            self.interrupted_by = reason
            self.task.cancel(reason.__name__)

    def add(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end_other_tasks(self) -> None:
        """Cancels what the job has started and left, however often the job itself is cancelled."""
        while others := self._tasks - {self.task}:
            for task in others:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait(others)

    def step(self, go_on: Callable[..., Any], *arguments: Any) -> Any:
        """One stretch of the job's code, from one await to the next."""
        live, clock = self._job.live, self._home.cpu_clock
        began = time.clock_gettime(clock)
        live.cpu_clock = clock, began
        self._home.holder = self._job, time.monotonic()
        try:
            return go_on(*arguments)
        finally:
            self._home.holder = live.cpu_clock = None
            live.spent_cpu_seconds += time.clock_gettime(clock) - began


_OWNER: contextvars.ContextVar[TaskRun | None] = contextvars.ContextVar("job", default=None)


def _count_for_its_job(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
    /,
    **options: Any,
) -> asyncio.Task[Any]:
    """A task factory: a task belongs to the job in whose context it is made."""
    run = _OWNER.get()
    if run is None or not isinstance(work, Coroutine):
        return asyncio.Task(work, loop=loop, **options)
    task = asyncio.Task(_Counted(work, run), loop=loop, **options)
    run.add(task)
    return task


class _Counted(Coroutine[Any, Any, Any]):
    """A coroutine whose steps count for a job."""

    __slots__ = ("_run", "_work")

    def __init__(self, work: Coroutine[Any, Any, Any], run: TaskRun) -> None:
        self._work, self._run = work, run

    @property
    def __name__(self) -> str:
        return getattr(self._work, "__qualname__", type(self._work).__name__)

    def send(self, value: Any) -> Any:
        return self._run.step(self._work.send, value)

    def throw(self, *error: Any) -> Any:
        return self._run.step(self._work.throw, *error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._work.__await__()
