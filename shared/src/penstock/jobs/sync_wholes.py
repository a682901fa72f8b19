"""Batches, chains and graphs for code without an event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.jobs.batches.batch_record import BatchRecord
from penstock.jobs.batches.client import Batches, OpenBatch
from penstock.jobs.batches.outcomes import MemberEnd
from penstock.jobs.derived_ids import Member
from penstock.jobs.dispatch.awaiting import Awaiting
from penstock.jobs.job_type import Call
from penstock.jobs.job_view import JobView
from penstock.jobs.workflows.client import Graphs, Step
from penstock.jobs.workflows.graph_record import GraphRecord

Run = Callable[[Coroutine[Any, Any, Any]], Any]
"""Has the work done elsewhere and returns its result."""


class SyncBatches:
    """See :class:`Batches`; ``options`` are its keyword arguments."""

    def __init__(self, batches: Batches, run: Run) -> None:
        self._batches, self._run = batches, run

    def create(self, calls: Iterable[Call], **options: Any) -> str:
        """See :meth:`Batches.create`."""
        batch_id: str = self._run(self._batches.create(calls, **options))
        return batch_id

    @contextmanager
    def open(self, **options: Any) -> Iterator[SyncOpenBatch]:
        """See :meth:`Batches.open`."""
        opened = self._batches.open(**options)
        batch = SyncOpenBatch(self._run(opened.__aenter__()), self._run)
        try:
            yield batch
        except Exception as error:
            self._run(opened.__aexit__(type(error), error, error.__traceback__))
            raise
        self._run(opened.__aexit__(None, None, None))

    def add(self, batch_id: str, calls: Iterable[Call], **options: Any) -> list[str]:
        """See :meth:`Batches.add`."""
        ids: list[str] = self._run(self._batches.add(batch_id, calls, **options))
        return ids

    def close(self, batch_id: str) -> None:
        """See :meth:`Batches.close`."""
        self._run(self._batches.close(batch_id))

    def show(self, batch_id: str) -> BatchRecord:
        """See :meth:`Batches.show`."""
        record: BatchRecord = self._run(self._batches.show(batch_id))
        return record

    def wait(self, batch_id: str, timeout_seconds: float | None = None) -> BatchRecord:
        """See :meth:`Batches.wait`."""
        record: BatchRecord = self._run(self._batches.wait(batch_id, timeout_seconds))
        return record

    def ended(self, batch_id: str) -> dict[Member, MemberEnd]:
        """See :meth:`Batches.ended`."""
        ends: dict[Member, MemberEnd] = self._run(self._batches.ended(batch_id))
        return ends

    def failed(self, batch_id: str, *, cancelled: bool = False) -> list[str]:
        """See :meth:`Batches.failed`."""
        ids: list[str] = self._run(self._batches.failed(batch_id, cancelled=cancelled))
        return ids

    def cancel(self, batch_id: str, reason: str = "cancelled by a client") -> BatchRecord:
        """See :meth:`Batches.cancel`."""
        record: BatchRecord = self._run(self._batches.cancel(batch_id, reason))
        return record

    def retry_failed(self, batch_id: str, *, cancelled: bool = False) -> list[str]:
        """See :meth:`Batches.retry_failed`."""
        ids: list[str] = self._run(self._batches.retry_failed(batch_id, cancelled=cancelled))
        return ids


class SyncOpenBatch:
    """A batch while it is open."""

    def __init__(self, batch: OpenBatch, run: Run) -> None:
        self.id = batch.id
        self._batch, self._run = batch, run

    def add(self, calls: Iterable[Call], *, queue: str = "") -> list[str]:
        """See :meth:`Batches.add`."""
        ids: list[str] = self._run(self._batch.add(calls, queue=queue))
        return ids


class SyncGraphs:
    """See :class:`Graphs`; ``options`` are its keyword arguments."""

    def __init__(self, graphs: Graphs, run: Run) -> None:
        self._graphs, self._run = graphs, run

    def chain(self, calls: Sequence[Call | Awaiting], **options: Any) -> str:
        """See :meth:`Graphs.chain`."""
        graph_id: str = self._run(self._graphs.chain(calls, **options))
        return graph_id

    def dispatch(self, steps: Mapping[str, Step], **options: Any) -> str:
        """See :meth:`Graphs.dispatch`."""
        graph_id: str = self._run(self._graphs.dispatch(steps, **options))
        return graph_id

    def show(self, graph_id: str) -> GraphRecord:
        """See :meth:`Graphs.show`."""
        record: GraphRecord = self._run(self._graphs.show(graph_id))
        return record

    def step(self, graph_id: str, name: str) -> JobView:
        """See :meth:`Graphs.step`."""
        view: JobView = self._run(self._graphs.step(graph_id, name))
        return view

    def wait(self, graph_id: str, timeout_seconds: float | None = None) -> GraphRecord:
        """See :meth:`Graphs.wait`."""
        record: GraphRecord = self._run(self._graphs.wait(graph_id, timeout_seconds))
        return record

    def cancel(self, graph_id: str, reason: str = "cancelled by a client") -> GraphRecord:
        """See :meth:`Graphs.cancel`."""
        record: GraphRecord = self._run(self._graphs.cancel(graph_id, reason))
        return record

    def retry_failed(self, graph_id: str) -> GraphRecord:
        """See :meth:`Graphs.retry_failed`."""
        record: GraphRecord = self._run(self._graphs.retry_failed(graph_id))
        return record
