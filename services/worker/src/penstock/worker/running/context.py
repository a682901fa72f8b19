"""The running job's :class:`penstock.jobs.Context`, used in the job's thread."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.jobs import derived_ids
from penstock.jobs.client import Client
from penstock.jobs.errors import AlreadyDispatched, Cancelled
from penstock.jobs.job_type import Call
from penstock.jobs.payloads.encryption import KeyRing
from penstock.jobs.running.checkpoints import Checkpoints
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.running.checkpoint import RunCheckpoint
from penstock.worker.running.job_metrics import JobMetrics
from penstock.worker.spark.lease import SparkUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.worker.running.commits import Commits
    from penstock.worker.spark.lease import SparkLease

_DISPATCH_SECONDS = 30.0
_ADD_TO_BATCH_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RunServices:
    """What the contexts of a worker's jobs reach the outside through.

    Attributes:
        loop: the worker's, which everything that talks to the broker is handed to.
        worker: its id.
        slots: how many jobs it runs at a time.
    """

    loop: asyncio.AbstractEventLoop
    client: Client
    spark: SparkLease
    commits: Commits
    checkpoints: Checkpoints
    ring: KeyRing
    metrics: JobMetrics
    worker: str
    slots: int = 1


class RunContext:
    """One job's view."""

    def __init__(self, services: RunServices, job: ClaimedJob) -> None:
        self._services, self._job = services, job

    @property
    def job_id(self) -> str:
        return self._job.id

    @property
    def attempt(self) -> int:
        return self._job.attempt

    @property
    def fencing_token(self) -> int:
        return self._job.token

    @cached_property
    def work_id(self) -> str:
        call = self._job.payload  # as it lies there, sealed or not: the same for all attempts
        arguments = hashlib.sha256(call.arguments)
        for name, value in sorted((call.handed or {}).items()):
            arguments.update(name.encode() + bytes(value))
        return f"{self._job.id}-{arguments.hexdigest()[:8]}"

    @property
    def deadline(self) -> float | None:
        timeout, begun = self._job.timeout_seconds, self._job.live.begun_at
        if not timeout or begun is None:
            return None
        return time.time() + begun + timeout - time.monotonic()

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        output = self._job.live.output
        about = output.extra() if output else {}
        return logging.LoggerAdapter(logging.getLogger(self._job.payload.function), about)

    @property
    def span(self) -> Any:
        return self._job.live.span

    @property
    def metrics(self) -> JobMetrics:
        return self._services.metrics

    @property
    def spark(self) -> SparkSession:
        if self._job.lost:
            raise Cancelled
        if self._services.slots > 1:
            raise SparkUnavailable(
                f"this worker runs {self._services.slots} jobs at a time, and has one Spark session"
                ", in which one job at a time is tagged, cancelled and measured: run jobs that use "
                "context.spark in a pool with slots = 1"
            )
        live = self._job.live
        session = self._services.spark.session(self._job.id, self._job.token, live.is_active)
        live.spark_session = session.session_id
        return session

    @property
    def cancelled(self) -> bool:
        return self._job.lost

    def progress(self, done: int, total: int | None = None) -> None:
        if self._job.lost:
            raise Cancelled
        self._job.live.progress = (done, total)
        self._job.live.is_active()

    def heartbeat(self) -> None:
        if self._job.lost:
            raise Cancelled
        self._job.live.is_active()

    def committed(self, name: str) -> str | None:
        work = self._services.commits.find(self._job, name)
        return asyncio.run_coroutine_threadsafe(work, self._services.loop).result()

    def commit(self, name: str, location: str) -> str:
        work = self._services.commits.commit(self._job, name, location)
        return asyncio.run_coroutine_threadsafe(work, self._services.loop).result()

    @cached_property
    def checkpoint(self) -> RunCheckpoint:
        services = self._services
        return RunCheckpoint(self._job, services.loop, services.checkpoints, services.ring)

    @cached_property
    def batch(self) -> RunBatch | None:
        if not derived_ids.member(self._job.id):
            return None
        return RunBatch(self._job, self._services)

    @property
    def graph(self) -> RunGraph | None:
        place = derived_ids.step(self._job.id)
        if place is None:
            return None
        call, (graph_id, index) = self._job.payload, place
        return RunGraph(id=graph_id, name=call.workflow, step=call.step, index=index)

    def dispatch(self, call: Call, *, queue: str = "", delay: float = 0.0, **terms: Any) -> str:
        work = self._services.client.dispatch(call, queue=queue, delay=delay, **terms)
        return asyncio.run_coroutine_threadsafe(work, self._services.loop).result(_DISPATCH_SECONDS)

    def start_workflow(self, name: str, values: Mapping[str, Any] | None = None) -> str:
        graph_id = derived_ids.started_id(self._job.id, name)
        work = self._start(name, values or {}, graph_id)
        return asyncio.run_coroutine_threadsafe(work, self._services.loop).result(_DISPATCH_SECONDS)

    async def _start(self, name: str, values: Mapping[str, Any], graph_id: str) -> str:
        try:
            return await self._services.client.definitions.run(name, values, graph_id=graph_id)
        except AlreadyDispatched:  # by an earlier attempt
            return graph_id


@dataclass(frozen=True, slots=True)
class RunGraph:
    """See :class:`penstock.jobs.running.context.JobGraph`."""

    id: str
    name: str
    step: str
    index: int


class RunBatch:
    """See :class:`penstock.jobs.running.context.JobBatch`.

    Made anew for each attempt, so that one that runs the job again names the same jobs.
    """

    def __init__(self, job: ClaimedJob, services: RunServices) -> None:
        self._job, self._services = job, services
        self._added = 0

    @property
    def id(self) -> str:
        member = derived_ids.member(self._job.id)
        return member.batch if member else ""

    def add(self, calls: Iterable[Call]) -> list[str]:
        if self._job.lost:
            raise Cancelled
        work = self._services.client.batches.add_from(self._job.id, calls, self._added)
        added = asyncio.run_coroutine_threadsafe(work, self._services.loop)
        ids = added.result(_ADD_TO_BATCH_SECONDS)
        self._added += len(ids)
        return ids
