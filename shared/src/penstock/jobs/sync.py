"""The same verbs without asyncio: a loop of its own in one background thread."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.bus.ending import end
from penstock.config import Settings
from penstock.config.topology import Priority
from penstock.jobs.client import Client
from penstock.jobs.job_type import Call
from penstock.jobs.job_view import JobView

if TYPE_CHECKING:
    from penstock.jobs.sync_records import SyncDeadLetters, SyncSchedules
    from penstock.jobs.sync_wholes import SyncBatches, SyncGraphs

T = TypeVar("T")


class SyncClient:
    """A :class:`Client` for code without an event loop.

    Example::

        with SyncClient(load()) as client:
            job_id = client.dispatch(rebuild(table="orders"))

    Args:
        connection: what gives and closes the client; else one over NATS, as the settings say.
    """

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
            self._client = self.call(self._connection.__aenter__())
        except BaseException:
            self._stop()
            raise

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

    @property
    def batches(self) -> SyncBatches:
        """Jobs that are counted together."""
        from penstock.jobs.sync_wholes import SyncBatches  # noqa: PLC0415 - few need it

        return SyncBatches(self._client.batches, self.call)

    @property
    def graphs(self) -> SyncGraphs:
        """Chains, and jobs that wait for each other."""
        from penstock.jobs.sync_wholes import SyncGraphs  # noqa: PLC0415 - few need it

        return SyncGraphs(self._client.graphs, self.call)

    @property
    def schedules(self) -> SyncSchedules:
        """Jobs that are dispatched again and again."""
        from penstock.jobs.sync_records import SyncSchedules  # noqa: PLC0415 - few need it

        return SyncSchedules(self._client.schedules, self.call)

    @property
    def dead(self) -> SyncDeadLetters:
        """Jobs that will not run again by themselves."""
        from penstock.jobs.sync_records import SyncDeadLetters  # noqa: PLC0415 - few need it

        return SyncDeadLetters(self._client.dead, self.call)

    def dispatch(
        self,
        call: Call,
        *,
        queue: str = "",
        delay: float | timedelta = 0.0,
        at: datetime | None = None,
        expires: float | timedelta | datetime | None = None,
        tags: Iterable[str] = (),
        job_id: str = "",
        unique_for: float | timedelta = 0.0,
        priority: Priority = "normal",
    ) -> str:
        """See :meth:`Client.dispatch`."""
        return self.call(
            self._client.dispatch(
                call,
                queue=queue,
                delay=delay,
                at=at,
                expires=expires,
                tags=tags,
                job_id=job_id,
                unique_for=unique_for,
                priority=priority,
            )
        )

    def dispatch_many(
        self, calls: Sequence[Call], *, queue: str = "", priority: Priority = "normal"
    ) -> list[str]:
        """See :meth:`Client.dispatch_many`."""
        return self.call(self._client.dispatch_many(calls, queue=queue, priority=priority))

    def job(self, job_id: str) -> JobView:
        """See :meth:`Client.job`."""
        return self.call(self._client.job(job_id))

    def wait(self, job_id: str, timeout_seconds: float | None = None) -> JobView:
        """See :meth:`Client.wait`."""
        return self.call(self._client.wait(job_id, timeout_seconds))

    def cancel(self, job_id: str, reason: str = "cancelled by a client") -> JobView:
        """See :meth:`Client.cancel`."""
        return self.call(self._client.cancel(job_id, reason))

    def pause_queue(self, queue: str, reason: str = "") -> None:
        """See :meth:`Client.pause_queue`."""
        self.call(self._client.pause_queue(queue, reason))

    def resume_queue(self, queue: str) -> None:
        """See :meth:`Client.resume_queue`."""
        self.call(self._client.resume_queue(queue))

    def retry(self, job_id: str, arguments: Mapping[str, Any] | None = None) -> None:
        """See :meth:`Client.retry`."""
        self.call(self._client.retry(job_id, arguments))

    def close(self) -> None:
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
