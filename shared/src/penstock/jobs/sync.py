"""The client without asyncio: an event loop in one background thread, and blocking methods."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from penstock.bus.ending import end
from penstock.config import Settings
from penstock.jobs.batches.client import Batches
from penstock.jobs.batches.open_batch import OpenBatch
from penstock.jobs.bulk.client import Bulk
from penstock.jobs.client import Client
from penstock.jobs.dead_letters.client import DeadLetters
from penstock.jobs.job_type import Call
from penstock.jobs.queues.pauses import QueuePauses
from penstock.jobs.reading.client import Jobs
from penstock.jobs.schedules.client import Schedules
from penstock.jobs.tagging import JobTags
from penstock.jobs.workflows.client import Graphs
from penstock.jobs.workflows.definitions import Definitions
from penstock.jobs.workflows.instances import Workflows
from penstock.jobs.workflows.recovery import StuckWorkflows

P = ParamSpec("P")
T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine in the client's event loop and returns its result."""


class Blocking:
    """An object with asynchronous methods, for code without an event loop.

    Args:
        target: the object.
        run: runs a coroutine in the loop that the object belongs to.
    """

    def __init__(self, target: Any, run: Run) -> None:
        self._target, self._run = target, run


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Blocking, P], T]:
    """The method of a :class:`Blocking` that waits for the result; with the same arguments."""

    @functools.wraps(method)
    def call(self: Blocking, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = self._run(method(self._target, *args, **kwargs))
        return result

    return call


def iterating(
    method: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> Callable[Concatenate[Blocking, P], Iterator[T]]:
    """The same for a method that yields items."""

    @functools.wraps(method)
    def call(self: Blocking, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return drain(method(self._target, *args, **kwargs), self._run)

    return call


def drain(items: AsyncIterator[T], run: Run) -> Iterator[T]:
    """The items one by one; the asynchronous iterator is closed when the caller stops early."""

    async def next_item() -> list[T]:
        async for item in items:
            return [item]
        return []

    async def close() -> None:
        if aclose := getattr(items, "aclose", None):
            await aclose()

    try:
        while page := run(next_item()):
            yield page[0]
    finally:
        run(close())


class SyncBatches(Blocking):
    """See :class:`Batches`."""

    create = blocking(Batches.create)
    add = blocking(Batches.add)
    close = blocking(Batches.close)
    show = blocking(Batches.show)
    wait = blocking(Batches.wait)
    ended = blocking(Batches.ended)
    failed = blocking(Batches.failed)
    cancel = blocking(Batches.cancel)
    retry_failed = blocking(Batches.retry_failed)

    @contextmanager
    def open(self, **options: Any) -> Iterator[SyncOpenBatch]:
        """See :meth:`Batches.open`; ``options`` are its arguments."""
        opened = self._target.open(**options)
        batch = SyncOpenBatch(self._run(opened.__aenter__()), self._run)
        try:
            yield batch
        except Exception as error:
            self._run(opened.__aexit__(type(error), error, error.__traceback__))
            raise
        self._run(opened.__aexit__(None, None, None))


class SyncOpenBatch:
    """A batch while it is open."""

    def __init__(self, batch: OpenBatch, run: Run) -> None:
        self.id = batch.id
        self._batch, self._run = batch, run

    def add(self, calls: Iterable[Call], *, queue: str = "") -> list[str]:
        """See :meth:`OpenBatch.add`."""
        ids: list[str] = self._run(self._batch.add(calls, queue=queue))
        return ids


class SyncWorkflows(Blocking):
    """See :class:`Workflows`."""

    get = blocking(Workflows.get)
    list = blocking(Workflows.list)
    signal = blocking(Workflows.signal)
    replay = blocking(Workflows.replay)
    fix = blocking(Workflows.fix)
    pause = blocking(Workflows.pause)
    resume = blocking(Workflows.resume)
    cancel = blocking(Workflows.cancel)


class SyncStuckWorkflows(Blocking):
    """See :class:`StuckWorkflows`."""

    find = blocking(StuckWorkflows.find)
    recover = blocking(StuckWorkflows.recover)


class SyncDefinitions(Blocking):
    """See :class:`Definitions`."""

    define = blocking(Definitions.define)
    get = blocking(Definitions.get)
    all = blocking(Definitions.all)
    remove = blocking(Definitions.remove)
    run = blocking(Definitions.run)


class SyncGraphs(Blocking):
    """See :class:`Graphs`."""

    chain = blocking(Graphs.chain)
    dispatch = blocking(Graphs.dispatch)
    show = blocking(Graphs.show)
    ids = blocking(Graphs.ids)
    find_id = blocking(Graphs.find_id)
    step = blocking(Graphs.step)
    jobs = blocking(Graphs.jobs)
    wait = blocking(Graphs.wait)
    pause = blocking(Graphs.pause)
    resume = blocking(Graphs.resume)
    cancel = blocking(Graphs.cancel)
    signal = blocking(Graphs.signal)
    retry_failed = blocking(Graphs.retry_failed)


class SyncSchedules(Blocking):
    """See :class:`Schedules`."""

    add = blocking(Schedules.add)
    all = blocking(Schedules.all)
    get = blocking(Schedules.get)
    pause = blocking(Schedules.pause)
    resume = blocking(Schedules.resume)
    run_now = blocking(Schedules.run_now)
    remove = blocking(Schedules.remove)
    compare = blocking(Schedules.compare)
    sync = blocking(Schedules.sync)


class SyncBulk(Blocking):
    """See :class:`Bulk`."""

    count = blocking(Bulk.count)
    purge = iterating(Bulk.purge)
    cancel = iterating(Bulk.cancel)
    move = iterating(Bulk.move)


class SyncJobs(Blocking):
    """See :class:`Jobs`."""

    list = blocking(Jobs.list)
    find_id = blocking(Jobs.find_id)
    logs = blocking(Jobs.logs)
    follow_logs = iterating(Jobs.follow_logs)
    stored_logs = iterating(Jobs.stored_logs)


class SyncJobTags(Blocking):
    """See :class:`JobTags`."""

    add = blocking(JobTags.add)
    remove = blocking(JobTags.remove)


class SyncDeadLetters(Blocking):
    """See :class:`DeadLetters`."""

    get = blocking(DeadLetters.get)
    find = iterating(DeadLetters.find)
    count = blocking(DeadLetters.count)
    groups = blocking(DeadLetters.groups)
    retry = blocking(DeadLetters.retry)
    retry_all = iterating(DeadLetters.retry_all)
    delete = blocking(DeadLetters.delete)
    delete_all = iterating(DeadLetters.delete_all)


class SyncQueuePauses(Blocking):
    """See :class:`QueuePauses`."""

    pause = blocking(QueuePauses.pause)
    resume = blocking(QueuePauses.resume)
    all = blocking(QueuePauses.all)


class SyncClient(Blocking):
    """A :class:`Client` for code without an event loop: all its verbs, without ``await``.

    Those of its attributes, too. One serves all threads of a process; a process that is forked
    makes one of its own.

    Example::

        with SyncClient(load()) as client:
            job_id = client.dispatch(rebuild(table="orders"))

    Args:
        settings: of this installation.
        connection: opens and closes the client; else one over NATS, as the settings name it.

    Attributes:
        batches: jobs that are counted together.
        graphs: chains, and jobs that wait for each other.
        stuck_workflows: coded workflows and graphs that should go on and do not.
        definitions: declared workflows, stored under a name; their instances are graphs.
        schedules: jobs that are dispatched again and again.
        dead: jobs that will not run again by themselves.
        bulk: operations on many jobs.
        jobs: lists of jobs, and what they wrote.
        tags: what jobs are tagged with after their dispatch.
        pauses: queues that are paused.
    """

    dispatch = blocking(Client.dispatch)
    dispatch_named = blocking(Client.dispatch_named)
    dispatch_many = blocking(Client.dispatch_many)
    job = blocking(Client.job)
    wait = blocking(Client.wait)
    cancel = blocking(Client.cancel)
    pause_queue = blocking(Client.pause_queue)
    resume_queue = blocking(Client.resume_queue)
    retry = blocking(Client.retry)

    def __init__(
        self, settings: Settings, connection: AbstractAsyncContextManager[Client] | None = None
    ) -> None:
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="penstock-client", daemon=True
        )
        self._thread.start()
        self._connection = connection or Client.connect(settings)
        try:
            client = self.call(self._connection.__aenter__())
        except BaseException:
            self._stop()
            raise
        super().__init__(client, self.call)
        self.batches = SyncBatches(client.batches, self.call)
        self.graphs = SyncGraphs(client.graphs, self.call)
        self.stuck_workflows = SyncStuckWorkflows(client.stuck_workflows, self.call)
        self.definitions = SyncDefinitions(client.definitions, self.call)
        self.workflows = SyncWorkflows(client.workflows, self.call)
        self.schedules = SyncSchedules(client.schedules, self.call)
        self.dead = SyncDeadLetters(client.dead, self.call)
        self.bulk = SyncBulk(client.bulk, self.call)
        self.jobs = SyncJobs(client.jobs, self.call)
        self.tags = SyncJobTags(client.tags, self.call)
        self.pauses = SyncQueuePauses(client.pauses, self.call)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in this client's event loop and returns its result.

        Raises:
            RuntimeError: the client was made before this process was forked.
        """
        if self._process != os.getpid():  # the loop's thread exists only in the parent
            work.close()
            raise RuntimeError(
                f"this SyncClient was made in process {self._process}, before the fork of process "
                f"{os.getpid()}: make one in each process (gunicorn: in post_fork)"
            )
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:  # Ctrl-C: the caller waits no longer, so the work ends too
            future.cancel()
            raise

    def close(self) -> None:
        """Closes the connection and ends the thread; nothing in a forked child."""
        if self._process != os.getpid():  # the connection is the parent's
            return
        self.call(self._connection.__aexit__(None, None, None))
        self._stop()

    def _stop(self) -> None:
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> SyncClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


async def _cancel_others() -> None:
    """Ends what still runs in this loop, such as a connect that was interrupted."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*(end(task) for task in tasks))
