"""The running job's :class:`penstock.jobs.Context`, in the job thread."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.jobs.checkpoints import Checkpoints
from penstock.jobs.client import Client
from penstock.jobs.errors import Cancelled
from penstock.jobs.payloads.encryption import KeyRing
from penstock.jobs.job_type import Call
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.running.batch import RunBatch
from penstock.worker.running.checkpoint import RunCheckpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.worker.running.commits import Commits
    from penstock.worker.spark.lease import SparkLease

_DISPATCH_SECONDS = 30.0


class RunContext:
    """One job's view; everything that talks to the broker is handed to the worker's loop."""

    def __init__(
        self,
        job: ClaimedJob,
        loop: asyncio.AbstractEventLoop,
        client: Client,
        spark: SparkLease,
        commits: Commits,
        checkpoints: Checkpoints,
        ring: KeyRing,
        worker: str,
    ) -> None:
        self._job = job
        self._worker = worker
        self._loop = loop
        self._client = client
        self._spark = spark
        self._commits = commits
        self._checkpoints, self._ring = checkpoints, ring

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
        timeout, begun = self._job.timeout_seconds, self._job.begun_at
        if not timeout or begun is None:
            return None
        return time.time() + begun + timeout - time.monotonic()

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        about = {
            "job_id": self._job.id,
            "attempt": self._job.attempt,
            "worker": self._worker,
        }
        return logging.LoggerAdapter(logging.getLogger(self._job.payload.function), about)

    @property
    def span(self) -> Any:
        return self._job.span

    @property
    def spark(self) -> SparkSession:
        if self._job.lost:
            raise Cancelled
        session = self._spark.session(self._job.id, self._job.token, self._job.beat)
        self._job.used_spark = session.session_id
        return session

    @property
    def cancelled(self) -> bool:
        return self._job.lost

    def progress(self, done: int, total: int | None = None) -> None:
        if self._job.lost:
            raise Cancelled
        self._job.progress = (done, total)
        self._job.beat_at = time.monotonic()

    def heartbeat(self) -> None:
        if self._job.lost:
            raise Cancelled
        self._job.beat_at = time.monotonic()

    def committed(self, name: str) -> str | None:
        work = self._commits.find(self._job, name)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def commit(self, name: str, location: str) -> str:
        work = self._commits.commit(self._job, name, location)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    @cached_property
    def checkpoint(self) -> RunCheckpoint:
        return RunCheckpoint(self._job, self._loop, self._checkpoints, self._ring)

    @cached_property
    def batch(self) -> RunBatch | None:
        return RunBatch.of(self._job, self._loop, self._client)

    def dispatch(self, call: Call, *, queue: str = "", delay: float = 0.0, **terms: Any) -> str:
        work = self._client.dispatch(call, queue=queue, delay=delay, **terms)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_DISPATCH_SECONDS)
